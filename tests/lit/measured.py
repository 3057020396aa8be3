"""A lit test format that also reports how many CPU seconds each test takes: unlike elapsed ones, they hardly depend on what else runs."""
import resource

import lit.formats
import lit.Test


def cpu_seconds():
    """What all ended children of this process have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class MeasuredTest(lit.formats.ShTest):
    def execute(self, test, lit_config):
        before = cpu_seconds()
        result = super().execute(test, lit_config)
        if isinstance(result, lit.Test.Result):
            result.addMetric("cpu", lit.Test.RealMetricValue(cpu_seconds() - before))
        return result
