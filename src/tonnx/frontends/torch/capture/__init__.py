"""From a module to a program: by torch.export or TorchScript, and what is patched meanwhile."""
