"""Smaller numbers in the place of floats: what is stored, and what that costs."""
