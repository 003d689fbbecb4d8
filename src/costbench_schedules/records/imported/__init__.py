"""Reads tuning records of others: AutoTVM's logs and MetaSchedule's data bases."""
