"""Makes Markdown tables and plots of the measurements."""


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def percent(share):
    return f"{100 * share:.0f} %"


def megabytes(result):
    return f"{result['peak_rss_mb']:.0f}"


def ratio(ours, rival):
    return f"**{ours['tokens_per_second'] / rival['tokens_per_second']:.2f}**"


def plot_bars(path, title, groups, series, axis):
    """A bar for each name in each group; 1 is the fastest peer."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6, 0.9 * len(groups) + 2), 4.5), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(series)
    for number, (name, values) in enumerate(series.items()):
        axes.bar([group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))], values, width, label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(groups)), groups, rotation=35, ha="right", fontsize=8)
    axes.set_ylabel(axis)
    axes.set_title(title)
    axes.legend(fontsize=8)
    figure.savefig(path)


def plot_curves(path, curves):
    """One column of axes for each curve (title, x's name, x, {y's name: y}), with a row for each y; both axes are logarithmic."""
    from matplotlib.figure import Figure

    height = max(len(ys) for _, _, _, ys in curves)
    figure = Figure(figsize=(3.6 * len(curves), 3 * height), layout="constrained")
    grid = figure.subplots(height, len(curves), squeeze=False)
    for column, (title, name, xs, ys) in enumerate(curves):
        for row, (label, values) in enumerate(ys.items()):
            axes = grid[row][column]
            axes.plot(xs, values, "o-")
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_ylim(min(values) / 1.5, max(values) * 1.5)
            axes.set_xlabel(name)
            axes.set_ylabel(label)
            axes.set_title(title if row == 0 else "")
            axes.grid(alpha=0.3)
    figure.savefig(path)
