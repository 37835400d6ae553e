"""Rules by family; `rules.load` imports them all."""
