"""Paddle models, read without Paddle."""
