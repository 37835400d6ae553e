"""A checkpoint of transformers as a package: ONNX files, tokenizer and settings in one folder, proven by their use."""
