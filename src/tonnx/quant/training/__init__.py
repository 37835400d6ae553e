"""Training that is aware of quantisation, in PyTorch: the only part of `tonnx.quant` that imports it."""
