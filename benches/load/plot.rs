//! The plot: what each case costs and how fast it goes, as bars.

use std::fmt::Write as _;

use crate::report::{Figure, Report};
use crate::subject::{FULL, NAIVE, PROTOTYPE, SERVICE};

/// Where bars begin, how long the longest is, and how high one is with its gap, in pixels.
const LEFT: f64 = 330.0;
const LONGEST: f64 = 260.0;
const BAR: f64 = 16.0;

/// Between two panels, and between two cases.
const PANEL: f64 = 380.0;
const GAP: f64 = 14.0;

/// What a panel shows, and of a figure how much that is.
type Panel = (&'static str, fn(&Figure) -> f64);

const PANELS: [Panel; 3] = [
    ("articles a second", |figure| figure.per_second),
    ("p99, ms", |figure| figure.p99_ms),
    ("processor time for 1,000 articles, ms", |figure| figure.cpu_ms.iter().sum()),
];

/// Draws all figures, case by case.
pub(crate) fn draw(report: &Report) -> String {
    let mut bars = String::new();
    let mut top = 40.0;
    for (at, (name, _)) in (0_u8..).zip(&PANELS) {
        text(&mut bars, LEFT + f64::from(at) * PANEL, 24.0, name);
    }
    for case in report.figures.chunk_by(|one, other| one.case == other.case) {
        for figure in case {
            text(&mut bars, 8.0, top + BAR - 5.0, &format!("{}: {}", figure.case, figure.subject));
            for (at, (_, value)) in (0_u8..).zip(&PANELS) {
                // Of one case, so that a slow one can be read as well.
                let most = case.iter().map(value).fold(f64::MIN_POSITIVE, f64::max);
                let (left, width) = (LEFT + f64::from(at) * PANEL, LONGEST * value(figure) / most);
                let _ = write!(
                    bars,
                    "<rect x=\"{left}\" y=\"{top}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/>",
                    BAR - 3.0,
                    colour(figure.subject)
                );
                text(&mut bars, left + width + 5.0, top + BAR - 5.0, &format!("{:.1}", value(figure)));
            }
            top += BAR;
        }
        top += GAP;
    }
    let width = LEFT + 3.0 * PANEL;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{top}\" font-family=\"sans-serif\" \
         font-size=\"11\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>{bars}</svg>\n"
    )
}

fn text(into: &mut String, left: f64, base: f64, text: &str) {
    let _ = write!(into, "<text x=\"{left:.1}\" y=\"{base:.1}\">{text}</text>");
}

fn colour(subject: &str) -> &'static str {
    match subject {
        SERVICE => "#2a6f97",
        FULL => "#61a5c2",
        PROTOTYPE => "#e09f3e",
        NAIVE => "#f2cc8f",
        _ => "#9aa0a6",
    }
}
