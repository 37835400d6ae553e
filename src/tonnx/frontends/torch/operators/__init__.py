"""What the two walks of PyTorch share: how an operator's schema meets a rule, weights, operators without a rule."""
