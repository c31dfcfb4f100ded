"""Models as ONNX files: written from torch, run by ONNX Runtime."""
