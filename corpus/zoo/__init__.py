"""The model zoo: one function per architecture, written against `workloads.context.Ctx`."""
