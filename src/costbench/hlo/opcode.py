"""Kinds of instruction. Codes up to 120 are those of TpuGraphs, so that `node_opcode` needs no table."""

from __future__ import annotations

from enum import IntEnum, unique

from costbench.errors import HloError


@unique
class Opcode(IntEnum):
    """XLA's opcodes. `Opcode.from_name("reduce-window")` reads XLA's spelling; `.xla_name` gives it back.

    Codes from 128 on belong to opcodes that TpuGraphs (tpugraphs2023, section 3) does not have; they are
    written to its files as 0, its code for an unknown opcode.
    """

    UNKNOWN = 0
    ABS = 1
    ADD = 2
    ADD_DEPENDENCY = 3
    AFTER_ALL = 4
    ALL_REDUCE = 5
    ALL_TO_ALL = 6
    ATAN2 = 7
    BATCH_NORM_GRAD = 8
    BATCH_NORM_INFERENCE = 9
    BATCH_NORM_TRAINING = 10
    BITCAST = 11
    BITCAST_CONVERT = 12
    BROADCAST = 13
    CALL = 14
    CEIL = 15
    CHOLESKY = 16
    CLAMP = 17
    COLLECTIVE_PERMUTE = 18
    COUNT_LEADING_ZEROS = 19
    COMPARE = 20
    COMPLEX = 21
    CONCATENATE = 22
    CONDITIONAL = 23
    CONSTANT = 24
    CONVERT = 25
    CONVOLUTION = 26
    COPY = 27
    COPY_DONE = 28
    COPY_START = 29
    COSINE = 30
    CUSTOM_CALL = 31
    DIVIDE = 32
    DOMAIN = 33
    DOT = 34
    DYNAMIC_SLICE = 35
    DYNAMIC_UPDATE_SLICE = 36
    EXPONENTIAL = 37
    EXPONENTIAL_MINUS_ONE = 38
    FFT = 39
    FLOOR = 40
    FUSION = 41
    GATHER = 42
    GET_DIMENSION_SIZE = 43
    SET_DIMENSION_SIZE = 44
    GET_TUPLE_ELEMENT = 45
    IMAG = 46
    INFEED = 47
    IOTA = 48
    IS_FINITE = 49
    LOG = 50
    LOG_PLUS_ONE = 51
    AND = 52
    NOT = 53
    OR = 54
    XOR = 55
    MAP = 56
    MAXIMUM = 57
    MINIMUM = 58
    MULTIPLY = 59
    NEGATE = 60
    OUTFEED = 61
    PAD = 62
    PARAMETER = 63
    PARTITION_ID = 64
    POPCNT = 65
    POWER = 66
    REAL = 67
    RECV = 68
    RECV_DONE = 69
    REDUCE = 70
    REDUCE_PRECISION = 71
    REDUCE_WINDOW = 72
    REMAINDER = 73
    REPLICA_ID = 74
    RESHAPE = 75
    REVERSE = 76
    RNG = 77
    RNG_GET_AND_UPDATE_STATE = 78
    RNG_BIT_GENERATOR = 79
    ROUND_NEAREST_AFZ = 80
    RSQRT = 81
    SCATTER = 82
    SELECT = 83
    SELECT_AND_SCATTER = 84
    SEND = 85
    SEND_DONE = 86
    SHIFT_LEFT = 87
    SHIFT_RIGHT_ARITHMETIC = 88
    SHIFT_RIGHT_LOGICAL = 89
    SIGN = 90
    SINE = 91
    SLICE = 92
    SORT = 93
    SQRT = 94
    SUBTRACT = 95
    TANH = 96
    TRANSPOSE = 98
    TRIANGULAR_SOLVE = 99
    TUPLE = 100
    WHILE = 102
    CBRT = 103
    ALL_GATHER = 104
    COLLECTIVE_PERMUTE_START = 105
    COLLECTIVE_PERMUTE_DONE = 106
    LOGISTIC = 107
    DYNAMIC_RESHAPE = 108
    ALL_REDUCE_START = 109
    ALL_REDUCE_DONE = 110
    REDUCE_SCATTER = 111
    ALL_GATHER_START = 112
    ALL_GATHER_DONE = 113
    OPT_BARRIER = 114
    ASYNC_START = 115
    ASYNC_UPDATE = 116
    ASYNC_DONE = 117
    ROUND_NEAREST_EVEN = 118
    STOCHASTIC_CONVERT = 119
    TAN = 120
    TOPK = 128
    ERF = 129
    RAGGED_DOT = 130
    RAGGED_ALL_TO_ALL = 131
    COLLECTIVE_BROADCAST = 132
    SCAN = 133
    ACOS = 134
    ACOSH = 135
    ASIN = 136
    ASINH = 137
    ATANH = 138
    COSH = 139
    SINH = 140

    @property
    def xla_name(self) -> str:
        """Returns XLA's spelling, with hyphens."""
        return self.name.lower().replace("_", "-")

    @property
    def tpugraphs_code(self) -> int:
        """Returns the code in TpuGraphs' files: 0 for an opcode that they do not have."""
        return int(self) if self < _FIRST_EXTRA_CODE else 0

    @staticmethod
    def from_name(name: str) -> Opcode:
        """Returns the opcode that XLA spells `name`.

        Raises:
            HloError: if there is none.
        """
        try:
            return _BY_NAME[name]
        except KeyError:
            raise HloError(f"unknown opcode {name!r}", field="opcode", expected="an XLA opcode") from None


_FIRST_EXTRA_CODE = 128
NUM_OPCODE_CODES = 160
"""Size of an embedding table that holds every opcode, with spare rows for new ones."""

_BY_NAME = {opcode.xla_name: opcode for opcode in Opcode}


def opcodes(names: str) -> frozenset[Opcode]:
    """Returns the opcodes that XLA spells so, names separated by spaces.

    Raises:
        HloError: for a name that no opcode has.
    """
    return frozenset(map(Opcode.from_name, names.split()))
