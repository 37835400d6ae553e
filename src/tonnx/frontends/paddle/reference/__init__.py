"""Paddle itself, as what a file is compared with."""
