"""MLflow's wrapper of a trained cost model. MLflow copies this file into the model and runs the copy.

No costbench object is pickled: the model is this source file and a checkpoint folder of JSON and tensors.
"""

from __future__ import annotations

import logging
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from costbench.errors import CostbenchError, DataError
from costbench.params import parse
from costbench.serving.requests import RequestLimits, as_rows
from costbench.serving.service import load_service

_log = logging.getLogger(__name__)


class ServedCostModel(PythonModel):
    """Prices the records of a request; errors that a client can fix are answered with status 400."""

    def load_context(self, context: PythonModelContext) -> None:
        config = context.model_config
        limits = parse(RequestLimits, config.get("limits", {}), where="model_config", field="limits")
        self._limits = limits
        self._service = load_service(context.artifacts["checkpoint"], config["task"], config["chip"], limits)

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        is_table = isinstance(model_input, pd.DataFrame)
        try:
            # Under the key `instances` MLflow passes on lists and columns.
            rows = as_rows(model_input.to_dict("records") if is_table else model_input, "inputs")
            if len(rows) > self._limits.records:
                raise DataError(f"{len(rows)} records", expected=f"at most {self._limits.records}")
            return self._service.answer(rows)
        except CostbenchError as error:
            raise MlflowException.invalid_parameter_value(error.message()) from None
        except Exception:
            # MLflow would answer with the stack.
            _log.exception("a request failed")
            raise MlflowException("the server failed; its log says why") from None


set_model(ServedCostModel())
