"""Two ONNX files side by side: which parts are the same, and what changed. (Not `diff`: `tonnx.diff` is a function.)"""
