"""Names of array types in annotations: kind and bits of the elements, in any shape.

The docstring of a function or field says the shape and the unit.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Bool = npt.NDArray[np.bool_]

# Signed integers, or floating-point numbers, of any number of bits; elements of any kind.
AnyInt = npt.NDArray[np.signedinteger[Any]]
AnyFloat = npt.NDArray[np.floating[Any]]
AnyArray = npt.NDArray[Any]
