"""A lit test format that also reports how many CPU seconds each test takes: unlike elapsed ones, they hardly depend on what else runs.
Tests that have passed, and of whose inputs nothing has changed since, are not run (tests/unchanged.py)."""
import os
import pathlib
import resource
import sys

import lit.formats
import lit.Test

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import unchanged


def cpu_seconds():
    """What all ended children of this process have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class MeasuredTest(lit.formats.ShTest):
    """`inputs` is a sum of what all tests depend on, and `documentation` of what those do that mention it. Records are kept in the folder
    `records`; without one, all tests run."""

    def __init__(self, inputs, documentation, records):
        super().__init__(execute_external=False)
        self.inputs, self.documentation, self.records = inputs, documentation, records

    def record_of(self, test):
        own = pathlib.Path(test.getSourcePath()).read_text()
        documentation = self.documentation if "docs" in own or "%examples" in own else ""
        features = sorted(name for name in test.config.available_features if not name.startswith("turn-"))
        name = "/".join(test.path_in_suite)
        inputs = unchanged.sum_of(name, own, features, self.inputs, documentation)
        return unchanged.Record(os.path.join(self.records, unchanged.sum_of(name)[:32]), inputs)

    def execute(self, test, lit_config):
        record = self.record_of(test) if self.records else None
        if record and (when := record.succeeded()):
            return lit.Test.Result(lit.Test.PASS, unchanged.unchanged_since(when))
        if record:
            record.forget()
        before = cpu_seconds()
        result = super().execute(test, lit_config)
        if isinstance(result, lit.Test.Result):
            result.addMetric("cpu", lit.Test.RealMetricValue(cpu_seconds() - before))
            if record and result.code is lit.Test.PASS:
                record.keep()
        return result
