"""Compiles LLVM IR for this processor and calls it: llvmlite's MCJIT, in the process of a worker."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from llvmlite import binding

from costbench.errors import DataError


def _machine(processor: str) -> binding.TargetMachine:
    """Returns a new target machine; the compiler that it is given to frees it."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    name = binding.get_host_cpu_name() if processor == "native" else processor
    features = binding.get_host_cpu_features().flatten() if processor == "native" else ""
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=name, features=features, opt=2, jit=True)


def host_vector_bits() -> int:
    """Returns the bits of this processor's widest vectors; 128 where LLVM does not say."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 512
    return 256 if features.get("avx2") else 128


class CompiledModule:
    """Machine code of a module; it is freed with this object.

    Args:
        text: LLVM IR.
        processor: `native`, or a processor of this family as LLVM names it.

    Raises:
        DataError: for malformed IR.
    """

    def __init__(self, text: str, processor: str = "native") -> None:
        machine = _machine(processor)
        try:
            module = binding.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            problem = f"malformed IR: {next(iter(str(error).splitlines()), '')}"
            raise DataError(problem, expected="LLVM's own output") from error
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        self._engine = binding.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()

    def call(self, name: str, *arguments: int) -> int:
        """Returns the 64-bit result of a function of 64-bit integers or addresses."""
        address = self._engine.get_function_address(name)
        kinds = [ctypes.c_int64] * len(arguments)
        return int(ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address)(*arguments))

    def set_values(self, values: Mapping[str, int]) -> None:
        """Sets global values of 64 bits."""
        for name, value in values.items():
            self._at(name).value = value

    def value(self, name: str) -> int:
        """Returns a global value of 64 bits."""
        return int(self._at(name).value)

    def _at(self, name: str) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self._engine.get_global_value_address(name))
