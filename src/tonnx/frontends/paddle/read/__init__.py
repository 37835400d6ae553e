"""Paddle's files, read without Paddle: both formats become the one form of `graph`."""
