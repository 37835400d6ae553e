"""The public functions: options in, result out."""
