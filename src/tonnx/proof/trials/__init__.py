"""Does a file compute what the model computes?"""
