"""TorchScript: scripted and traced modules, functions and archives. Shares the rules of `tonnx.lowering.ops`.

A TorchScript graph is a program, not a data flow graph: it writes to tensors, lists and module attributes, and has
branches and loops. `walk` runs it on values that are known only in part (`things`): what is known is computed at once,
what is not becomes nodes. Writes change the value that a tensor has from then on (`store`). Branches and loops whose
course is known only at run time become If and Loop, with all that they write among their outputs (`control`, `loops`).
"""
