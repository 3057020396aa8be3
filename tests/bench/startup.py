"""Measures the time from the start of xfc's process to the first translated token."""
from common import run_json, translator
from report import table

AIMS = {"tiny": 20, "base": 150}


def measure(options):
    rows = []
    for size in options.sizes:
        options.log(f"startup {size.name}")
        for threads in options.threads:
            result = run_json([translator(options, size), "bench", "startup", "--threads", threads, "--json"])
            rows.append({"size": size.name, "threads": threads, "best_ms": result["first_token_ms"], "median_ms": result["first_token_ms_median"]})
    return rows


def markdown(rows, machine):
    return "\n\n".join(["Weights lie in a file the system has in memory.",
                        table(["size", "threads", "best ms", "median ms", "aim ms"],
                              [[row["size"], row["threads"], f"{row['best_ms']:.1f}", f"{row['median_ms']:.1f}", AIMS.get(row["size"], "")]
                               for row in rows])])
