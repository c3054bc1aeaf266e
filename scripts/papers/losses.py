"""Tables and curves of losses, which most pages have."""
import statistics

from compare import Difference, Spread
from lab import Lab, Model
from page import Page, subplots


def millions(count: int) -> str:
    return f"{count / 1e6:.2f} M"


def parameters(lab: Lab, model: Model) -> tuple[str, str]:
    """All and activated."""
    counted = lab.parameters(model)
    return millions(counted["total"]), millions(counted["activated"])


def loss_headings(best: Model) -> list[str]:
    return ["model", "parameters", "activated", "paper: Pile loss", "here: loss, mean ± sd", f"above {best.name}"]


def loss_rows(lab: Lab, models: list[Model], losses: dict, paper: dict[str, str], best: Model) -> list[list]:
    rows = []
    for model in models:
        of = losses[model.name]
        behind = "" if model is best else str(Difference.of(of, losses[best.name]))
        rows.append([model.name, *parameters(lab, model), paper.get(model.name, ""), Spread.of(of), behind])
    return rows


def plot_losses(lab: Lab, axis, models: list[Model]) -> None:
    for model in models:
        runs = [[(line["step"], line["valid_loss"]) for line in lab.metrics(model, seed) if line.get("valid_loss") is not None]
                for seed in lab.seeds]
        steps = [step for step, _ in runs[0]]
        axis.plot(steps, [statistics.fmean(run[i][1] for run in runs) for i in range(len(steps))], label=model.name, linewidth=1.5)
    axis.set_xlabel("step")
    axis.set_ylabel("held-out loss, nats a token")


def curves(lab: Lab, page: Page, models: list[Model], file: str) -> str:
    """Validation loss over training, mean of the seeds."""
    figure, (axis,) = subplots()
    plot_losses(lab, axis, models)
    axis.set_ylim(top=axis.get_ylim()[0] + 0.75 * (axis.get_ylim()[1] - axis.get_ylim()[0]))
    axis.legend(frameon=False)
    return page.figure(file, "Held-out loss over training", figure)
