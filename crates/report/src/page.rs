//! The page's markup: what it says in words and tables, and the places where pictures are drawn.

use crate::data::CLASSES;
use crate::escape::Escaped;
use crate::figures::FIGURES;
use crate::words::{gpu_hours, grouped, percent, span};
use bursar_scenario::Scenario;
use bursar_sim::{Outcome, PolicySummary};
use std::io::{self, Write};

const STYLE: &str = include_str!("../assets/style.css");

/// In this order: each uses what stands before it.
const SCRIPTS: [&str; 9] = [
    include_str!("../assets/data.js"),
    include_str!("../assets/words.js"),
    include_str!("../assets/colours.js"),
    include_str!("../assets/parts.js"),
    include_str!("../assets/lines.js"),
    include_str!("../assets/charts.js"),
    include_str!("../assets/timeline-view.js"),
    include_str!("../assets/timeline.js"),
    include_str!("../assets/page.js"),
];

/// Nothing is fetched, from anywhere; only what stands in the file runs.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// A part of the page that scripts fill.
struct Part {
    id: &'static str,
    heading: &'static str,
    text: &'static str,
}

const PARTS: [Part; 5] = [
    Part {
        id: "timeline",
        heading: "Timeline",
        text: "Who had which GPUs when. Plain colour is protected, hatched colour is interruptible, hatched grey is charged to \
               nobody, and a red edge is where an attempt was told to leave.",
    },
    Part {
        id: "delivered",
        heading: "Delivered against allocated",
        text: "What each budget was charged (delivered) beside what its fraction came to (allocation). A budget that asks \
               for less than its allocation is not owed the rest.",
    },
    Part {
        id: "ratios",
        heading: "Usage ratio",
        text: "The metric that sorts the queue (rule 3): charged and still protected GPU-time over allocation, within reach of \
               lookback and horizon. At 1 a budget has used exactly its part; the least is served first.",
    },
    Part {
        id: "waits",
        heading: "Waits",
        text: "How long work with a contract waited, by class, on a scale on which every step is ten times the one before.",
    },
    Part {
        id: "occupancy",
        heading: "Occupancy and fragmentation",
        text: "What the GPUs were given to, the idle ones that stand on partly occupied hosts (fragmented), and what waiting work \
               with a contract asked for.",
    },
];

/// Writes the whole page. `json` must already be harmless within a `script` element.
pub(crate) fn write(
    scenario: &Scenario,
    outcomes: &[Outcome],
    title: &str,
    json: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let summaries: Vec<&PolicySummary> = outcomes.iter().map(|outcome| &outcome.summary).collect();
    head(title, out)?;
    out.write_all(b"<body>\n<main>\n")?;
    header(scenario, &summaries, title, out)?;
    figures(&summaries, out)?;
    out.write_all(
        b"<noscript><p class=\"note\">The pictures below need scripts, which this viewer does not run. All tables are above and at the end.</p></noscript>\n\
          <div id=\"switch\" hidden></div>\n",
    )?;
    for Part { id, heading, text } in PARTS {
        write!(
            out,
            "<section id=\"{id}\" aria-labelledby=\"{id}-heading\">\n<h2 id=\"{id}-heading\">{heading}</h2>\n\
             <p class=\"lead\">{text}</p>\n<div class=\"drawn\"></div>\n</section>\n"
        )?;
    }
    budgets(&summaries, out)?;
    waits(&summaries, out)?;
    out.write_all(
        b"</main>\n<p id=\"said\" class=\"unseen\" role=\"status\" aria-live=\"polite\"></p>\n",
    )?;
    // The scripts take the namespace of their drawings from this element.
    out.write_all(
        b"<svg id=\"seed\" hidden aria-hidden=\"true\" width=\"0\" height=\"0\"></svg>\n",
    )?;
    write!(
        out,
        "<script type=\"application/json\" id=\"data\">{json}</script>\n<script>\n(() => {{\n\"use strict\";\n"
    )?;
    for script in SCRIPTS {
        out.write_all(script.as_bytes())?;
    }
    out.write_all(b"})();\n</script>\n</body>\n</html>\n")
}

fn head(title: &str, out: &mut dyn Write) -> io::Result<()> {
    let title = Escaped(title);
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{CONTENT_POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} - Bursar</title>\n<style>\n{STYLE}</style>\n</head>\n"
    )
}

fn header(
    scenario: &Scenario,
    summaries: &[&PolicySummary],
    title: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "<header>\n<p class=\"kind\">Bursar, simulation</p>\n<h1>{}</h1>",
        Escaped(title)
    )?;
    if let Some(about) = &scenario.about {
        writeln!(out, "<p class=\"lead\">{}</p>", Escaped(about))?;
    }
    let longest = |value: fn(&PolicySummary) -> f64| {
        summaries.iter().map(|summary| value(summary)).fold(0.0, f64::max)
    };
    let models: Vec<&str> = scenario.models.iter().map(|model| model.name.as_str()).collect();
    let submitted = longest(|summary| summary.simulator.workloads as f64);
    let facts = [
        ("GPUs", format!("{} ({})", grouped(scenario.gpus_total() as f64), models.join(", "))),
        ("hosts", grouped(scenario.hosts.len() as f64)),
        (
            "budgets",
            grouped(scenario.budgets.iter().filter(|budget| budget.is_leaf).count() as f64),
        ),
        ("workloads", grouped(submitted)),
        ("measured span", span(longest(|summary| summary.measured_seconds))),
        ("whole run", span(longest(|summary| summary.ended_seconds))),
        ("lookback, horizon", {
            let settings = &scenario.settings;
            let (lookback_ms, horizon_ms) =
                (settings.lookback_ms as f64, settings.horizon_ms as f64);
            format!("{}, {}", span(lookback_ms / 1_000.0), span(horizon_ms / 1_000.0))
        }),
        ("seed", scenario.seed.to_string()),
    ];
    out.write_all(b"<dl class=\"facts\">\n")?;
    for (name, value) in facts {
        writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(&value))?;
    }
    out.write_all(b"</dl>\n")?;
    if !scenario.notes.is_empty() {
        out.write_all(b"<details><summary>How the work was read</summary>\n<ul>\n")?;
        for note in &scenario.notes {
            writeln!(out, "<li>{}</li>", Escaped(note))?;
        }
        out.write_all(b"</ul></details>\n")?;
    }
    out.write_all(b"</header>\n")
}

/// A table that scrolls by itself where it is wider than the screen.
fn table(
    caption: &str,
    label: &str,
    columns: &[String],
    rows: impl Iterator<Item = (String, Vec<String>)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    write!(
        out,
        "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\"><table>\n<caption>{caption}</caption>\n\
         <thead><tr><th scope=\"col\">{label}</th>"
    )?;
    for column in columns {
        write!(out, "<th scope=\"col\">{}</th>", Escaped(column))?;
    }
    out.write_all(b"</tr></thead>\n<tbody>\n")?;
    for (name, cells) in rows {
        write!(out, "<tr><th scope=\"row\">{}</th>", Escaped(&name))?;
        for cell in cells {
            write!(out, "<td>{}</td>", Escaped(&cell))?;
        }
        out.write_all(b"</tr>\n")?;
    }
    out.write_all(b"</tbody></table></div>\n")
}

fn names(summaries: &[&PolicySummary]) -> Vec<String> {
    summaries.iter().map(|summary| summary.policy.clone()).collect()
}

fn figures(summaries: &[&PolicySummary], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"<section id=\"figures\" aria-labelledby=\"figures-heading\">\n<h2 id=\"figures-heading\">Key figures</h2>\n")?;
    let rows = FIGURES.iter().map(|figure| {
        let values = summaries.iter().map(|summary| (figure.value)(summary)).collect();
        (figure.name.to_owned(), values)
    });
    table("Key figures per policy", "figure", &names(summaries), rows, out)?;
    out.write_all(b"<details><summary>What the figures mean</summary>\n<dl class=\"meanings\">\n")?;
    for figure in &FIGURES {
        writeln!(out, "<dt>{}</dt><dd>{}</dd>", figure.name, figure.meaning)?;
    }
    out.write_all(
        b"<dt>owed</dt><dd>for each hour the smaller of a leaf's allocation and its demand in that hour, summed</dd>\n\
          </dl></details>\n</section>\n",
    )
}

fn budgets(summaries: &[&PolicySummary], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(
        b"<section id=\"budgets\" aria-labelledby=\"budgets-heading\">\n<h2 id=\"budgets-heading\">Owed and delivered per budget</h2>\n\
          <p class=\"lead\">GPU-hours within the measured span. The delivered ratio is at most 100 %; what was delivered may be more than was owed.</p>\n",
    )?;
    let mut columns = vec!["fraction".to_owned()];
    for summary in summaries {
        let of = |what: &str| match summaries {
            [_] => what.to_owned(),
            _ => format!("{}: {what}", summary.policy),
        };
        columns.extend([of("owed"), of("delivered"), of("ratio")]);
    }
    let count = summaries.first().map_or(0, |summary| summary.budgets.len());
    let rows = (0..count).map(|place| {
        let budget = &summaries[0].budgets[place];
        let mut cells = vec![percent(budget.fraction)];
        for summary in summaries {
            match summary.budgets.get(place) {
                Some(budget) => cells.extend([
                    gpu_hours(budget.owed_gpu_hours),
                    gpu_hours(budget.delivered_gpu_hours),
                    if budget.owed_gpu_hours > 0.0 {
                        percent(budget.delivered_ratio)
                    } else {
                        "none owed".to_owned()
                    },
                ]),
                None => cells.extend(["", "", ""].map(str::to_owned)),
            }
        }
        (budget.budget.clone(), cells)
    });
    table("Owed and delivered GPU-hours per budget", "budget", &columns, rows, out)?;
    out.write_all(b"</section>\n")
}

fn waits(summaries: &[&PolicySummary], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(
        b"<section id=\"wait-table\" aria-labelledby=\"wait-table-heading\">\n<h2 id=\"wait-table-heading\">Waits by class</h2>\n\
          <p class=\"lead\">From submission to the first start: p50, p90, p99 and the longest. Who still waited at the end counts with the wait so far.</p>\n",
    )?;
    let seen = |class: &&str| {
        summaries.iter().any(|summary| summary.first_waits.classes.contains_key(*class))
    };
    let rows = CLASSES.into_iter().filter(seen).map(|class| {
        let cells = summaries.iter().map(|summary| {
            summary.first_waits.classes.get(class).map_or_else(String::new, |waits| {
                let quantiles = [waits.p50, waits.p90, waits.p99, waits.max].map(span);
                format!("{}  (of {})", quantiles.join(" / "), grouped(waits.count as f64))
            })
        });
        (class_name(class), cells.collect())
    });
    table("Waits from submission to the first start", "class", &names(summaries), rows, out)?;
    out.write_all(b"</section>\n")
}

fn class_name(class: &str) -> String {
    match class {
        "debug" | "all" => class.to_owned(),
        "unallocated" => "no contract".to_owned(),
        "1" => "1 GPU".to_owned(),
        size => format!("{size} GPUs"),
    }
}
