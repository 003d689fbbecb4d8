"""An entry of the suite in twenty lines: boosted trees, from files that pandas reads.

After `costbench suite data --task tile`; then
`costbench suite score predictions.parquet --task tile --name mine`.
"""

import lightgbm as lgb
import numpy as np
import pandas as pd

kernels = pd.read_parquet("suite/tile/summaries.parquet").set_index("id")["features"]
decisions = pd.read_parquet("suite/tile/decisions.parquet")
decisions["program"] = decisions["id"].str.split("/").str[0]
fastest = decisions.groupby("id")["runtime_ns"].transform("min")
decisions["target"] = np.log(decisions["runtime_ns"] / fastest)
own = [name for name in decisions if name not in ("id", "decision", "program", "target", "runtime_ns")]
parts = []
for _, fold in pd.read_parquet("suite/tile/splits.parquet").groupby("fold"):
    programs = {part: fold["program"][fold["set"] == part] for part in ("train", "test")}
    rows = {part: decisions[decisions["program"].isin(names)] for part, names in programs.items()}
    rows["train"] = rows["train"].sample(min(50_000, len(rows["train"])), random_state=0)
    table = {part: np.hstack([np.stack(kernels[of["id"]].to_numpy()), of[own]]) for part, of in rows.items()}
    trees = lgb.LGBMRegressor(n_estimators=300, num_leaves=63, n_jobs=1, verbose=-1)
    trees.fit(table["train"], rows["train"]["target"])
    parts.append(rows["test"][["id", "decision"]].assign(cost=trees.predict(table["test"])))
pd.concat(parts).to_parquet("predictions.parquet", index=False)
