from costbench.hlo.proto import hlo_pb2 as _hlo_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TuningData(_message.Message):
    __slots__ = ("modules",)
    MODULES_FIELD_NUMBER: _ClassVar[int]
    modules: _containers.RepeatedCompositeFieldContainer[ModuleTuningData]
    def __init__(self, modules: _Optional[_Iterable[_Union[ModuleTuningData, _Mapping]]] = ...) -> None: ...

class ModuleTuningData(_message.Message):
    __slots__ = ("module", "fingerprint", "runs", "config_index_to_node")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_INDEX_TO_NODE_FIELD_NUMBER: _ClassVar[int]
    module: _hlo_pb2.HloModuleProto
    fingerprint: int
    runs: _containers.RepeatedCompositeFieldContainer[ConfigProfile]
    config_index_to_node: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, module: _Optional[_Union[_hlo_pb2.HloModuleProto, _Mapping]] = ..., fingerprint: _Optional[int] = ..., runs: _Optional[_Iterable[_Union[ConfigProfile, _Mapping]]] = ..., config_index_to_node: _Optional[_Iterable[int]] = ...) -> None: ...

class ConfigProfile(_message.Message):
    __slots__ = ("op_config", "module_config", "error", "profile", "is_default")
    OP_CONFIG_FIELD_NUMBER: _ClassVar[int]
    MODULE_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    op_config: HloOpConfig
    module_config: HloModuleConfig
    error: bool
    profile: _hlo_pb2.ExecutionProfile
    is_default: bool
    def __init__(self, op_config: _Optional[_Union[HloOpConfig, _Mapping]] = ..., module_config: _Optional[_Union[HloModuleConfig, _Mapping]] = ..., error: _Optional[bool] = ..., profile: _Optional[_Union[_hlo_pb2.ExecutionProfile, _Mapping]] = ..., is_default: _Optional[bool] = ...) -> None: ...

class HloOpConfig(_message.Message):
    __slots__ = ("tile_size_config",)
    TILE_SIZE_CONFIG_FIELD_NUMBER: _ClassVar[int]
    tile_size_config: TileSizeConfig
    def __init__(self, tile_size_config: _Optional[_Union[TileSizeConfig, _Mapping]] = ...) -> None: ...

class TileSizeConfig(_message.Message):
    __slots__ = ("kernel_bounds", "output_bounds", "input_bounds", "iteration_bounds")
    KERNEL_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    INPUT_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    ITERATION_BOUNDS_FIELD_NUMBER: _ClassVar[int]
    kernel_bounds: _containers.RepeatedScalarFieldContainer[int]
    output_bounds: _containers.RepeatedScalarFieldContainer[int]
    input_bounds: _containers.RepeatedScalarFieldContainer[int]
    iteration_bounds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, kernel_bounds: _Optional[_Iterable[int]] = ..., output_bounds: _Optional[_Iterable[int]] = ..., input_bounds: _Optional[_Iterable[int]] = ..., iteration_bounds: _Optional[_Iterable[int]] = ...) -> None: ...

class HloModuleConfig(_message.Message):
    __slots__ = ("layout_config",)
    LAYOUT_CONFIG_FIELD_NUMBER: _ClassVar[int]
    layout_config: LayoutConfig
    def __init__(self, layout_config: _Optional[_Union[LayoutConfig, _Mapping]] = ...) -> None: ...

class LayoutConfig(_message.Message):
    __slots__ = ("nodes",)
    class NodeLayoutConfig(_message.Message):
        __slots__ = ("tensors",)
        class TensorLayoutConfig(_message.Message):
            __slots__ = ("dims",)
            DIMS_FIELD_NUMBER: _ClassVar[int]
            dims: _containers.RepeatedScalarFieldContainer[int]
            def __init__(self, dims: _Optional[_Iterable[int]] = ...) -> None: ...
        TENSORS_FIELD_NUMBER: _ClassVar[int]
        tensors: _containers.RepeatedCompositeFieldContainer[LayoutConfig.NodeLayoutConfig.TensorLayoutConfig]
        def __init__(self, tensors: _Optional[_Iterable[_Union[LayoutConfig.NodeLayoutConfig.TensorLayoutConfig, _Mapping]]] = ...) -> None: ...
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[LayoutConfig.NodeLayoutConfig]
    def __init__(self, nodes: _Optional[_Iterable[_Union[LayoutConfig.NodeLayoutConfig, _Mapping]]] = ...) -> None: ...
