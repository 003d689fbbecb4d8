# For type checkers and editors; `__init__.py` imports these names when they are used.
from costbench.workbench import dataset as dataset
from costbench.workbench import kernels as kernels
from costbench.workbench import load_model as load_model
from costbench.workbench import load_program as load_program
from costbench.workbench import load_target as load_target
from costbench.workbench import measure as measure
from costbench.workbench import predict as predict
from costbench.workbench import tile_space as tile_space
