"""ONNX Runtime, as an encoder needs it: on the processor, one thread, nothing from outside the file."""

from __future__ import annotations

from typing import Any

from pate.errors import DataError


def open_session(model: bytes) -> Any:
    """Return an ``onnxruntime.InferenceSession`` of a checked graph."""
    try:
        import onnxruntime
    except ImportError as error:
        raise DataError("encoders need the package onnxruntime: install it") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.use_deterministic_compute = True
    options.log_severity_level = 4
    # A run's memory goes back, and is not planned by the shapes of earlier inputs.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.add_session_config_entry("session.load_model_format", "ONNX")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        # Its fallback would print the error, and try the same again.
        return onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:  # its errors have no common base but this
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        shown = "".join(each if each.isprintable() else " " for each in text)[:300]
        raise DataError(f"ONNX Runtime cannot open the graph: {shown}") from error
