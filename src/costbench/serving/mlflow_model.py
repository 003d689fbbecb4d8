"""MLflow's wrapper of a trained cost model. MLflow copies this file into the model and runs the copy.

No costbench object is pickled: the model is this source file and a checkpoint folder of JSON and tensors.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from costbench.errors import CostbenchError
from costbench.serving.service import load_service


class ServedCostModel(PythonModel):
    """Prices the rows of a table; errors that a client can fix are answered with status 400."""

    def load_context(self, context: PythonModelContext) -> None:
        config = context.model_config
        self._service = load_service(context.artifacts["checkpoint"], config["task"], config["chip"])

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        rows = [{str(key): value for key, value in row.items()} for row in model_input.to_dict("records")]
        try:
            return self._service.answer(rows)
        except CostbenchError as error:
            raise MlflowException.invalid_parameter_value(error.message()) from None


set_model(ServedCostModel())
