"""Python's own control flow, kept: loops and branches that depend on sizes or on values become Loop and If.

torch.export follows one path through the code. Where that is not enough, the function at fault is rewritten from its
source for the length of the capture (`replace_code`, `rewrite_ast`, `single_exit`, `scope_analysis`), so that it calls
`runtime`: one pass of a loop, or both sides of a branch, are recorded in the graph that is being traced anyway, between
operators of our own (`operators`, `loop`, `branch`, `merge`, `state`). `fx.recorded_flow` cuts them out again.
"""
