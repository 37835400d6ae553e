"""Small programs of one operator each; `make_fixtures.py` saves them with the real Paddle."""
