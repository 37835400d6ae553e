"""The graph: how nodes are made, replaced, typed, folded, and what is known of values."""
