//! What is told: a table while it runs, JSON at the end.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::Failed;
use crate::machine::Memory;
use crate::subject::{FULL, PROTOTYPE, Round, SERVICE, SINGLE};

/// A figure of one case and one subject: medians over its rounds.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) case: String,
    pub(crate) subject: &'static str,
    /// Articles a second.
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Milliseconds of processor time for 1,000 articles: service, database, driver.
    pub(crate) cpu_ms: [f64; 3],
    rounds: usize,
    /// After the rounds, and the most until then.
    memory: Memory,
}

impl Figure {
    pub(crate) fn of(case: &str, subject: &'static str, rounds: &[Round], memory: Memory) -> Self {
        let of = |what: &dyn Fn(&Round) -> f64| median(rounds.iter().map(what).collect());
        let quantile = |at: f64| of(&|round| quantile_ms(&round.tally.latency, at));
        let cpu = |part: &dyn Fn(&Round) -> std::time::Duration| {
            of(&|round| part(round).as_secs_f64() * 1e6 / count(round.tally.articles).max(1.0))
        };
        Self {
            case: case.to_owned(),
            subject,
            per_second: of(&|round| count(round.tally.articles) / round.tally.elapsed.as_secs_f64()),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            cpu_ms: [
                cpu(&|round| round.used.service),
                cpu(&|round| round.used.database),
                cpu(&|round| round.used.driver),
            ],
            rounds: rounds.len(),
            memory,
        }
    }

    fn cpu_all(&self) -> f64 {
        self.cpu_ms.iter().sum()
    }

    fn json(&self) -> Value {
        let [service, database, driver] = self.cpu_ms;
        json!({
            "case": self.case, "subject": self.subject, "rounds": self.rounds, "articles_per_second": self.per_second,
            "p50_ms": self.p50_ms, "p99_ms": self.p99_ms,
            "memory_kib": self.memory.now_kib, "memory_peak_kib": self.memory.peak_kib,
            "cpu_ms_per_1000": {"service": service, "database": database, "driver": driver},
        })
    }
}

pub(crate) fn quantile_ms(latency: &Histogram<u64>, at: f64) -> f64 {
    count(latency.value_at_quantile(at)) / 1_000.0
}

#[expect(clippy::cast_precision_loss, reason = "figures to print")]
pub(crate) fn count(number: u64) -> f64 {
    number as f64
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// What was measured so far.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) figures: Vec<Figure>,
    memory: Vec<(String, Memory)>,
    facts: serde_json::Map<String, Value>,
}

impl Report {
    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// As [`Self::fact`], but not printed.
    pub(crate) fn keep(&mut self, name: &str, value: Value) {
        self.facts.insert(name.to_owned(), value);
    }

    pub(crate) fn fact(&mut self, name: &str, value: Value) {
        match &value {
            Value::Object(figures) => {
                println!("{name}");
                for (name, figure) in figures {
                    println!("    {:<44} {}", name.replace('_', " "), brief(figure));
                }
            }
            value => println!("{name}: {}", brief(value)),
        }
        self.facts.insert(name.to_owned(), value);
    }

    pub(crate) fn memory(&mut self, when: &str, pid: u32) -> Result<(), Failed> {
        let memory = Memory::of(pid)?;
        println!(
            "memory of the service, {when}: {} MiB, at most {} MiB",
            memory.now_kib / 1024,
            memory.peak_kib / 1024
        );
        self.memory.push((when.to_owned(), memory));
        Ok(())
    }

    pub(crate) fn print_heads() {
        println!(
            "{:<20} {:<26} {:>9} {:>7} {:>7} {:>8} {:>8}   {:>7} {:>8} {:>7} {:>7}   {:>5} {:>5}",
            "case",
            "",
            "per s",
            "/single",
            "/proto",
            "p50 ms",
            "p99 ms",
            "service",
            "database",
            "driver",
            "CPU all",
            "MiB",
            "peak"
        );
    }

    /// The rate of a case, if it was measured.
    pub(crate) fn rate(&self, case: &str, subject: &str) -> Option<f64> {
        let figure = self.figures.iter().find(|figure| figure.case == case && figure.subject == subject);
        figure.map(|figure| figure.per_second)
    }

    /// Prints what there is of a case, each beside the two it is held against.
    pub(crate) fn print_case(&self, case: &str) {
        let figures = self.figures.iter().filter(|figure| figure.case == case).collect::<Vec<_>>();
        let of = |subject: &str| figures.iter().find(|figure| figure.subject == subject);
        for figure in &figures {
            let ratio = |subject: &str| {
                let ratio = of(subject).map(|other| figure.per_second / other.per_second);
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}x"))
            };
            let [service, database, driver] = figure.cpu_ms;
            println!(
                "{:<20} {:<26} {:>9.0} {:>7} {:>7} {:>8.2} {:>8.2}   {service:>7.1} {database:>8.1} {driver:>7.1} {:>7.1}   {:>5} {:>5}",
                figure.case,
                figure.subject,
                figure.per_second,
                ratio(SINGLE),
                ratio(PROTOTYPE),
                figure.p50_ms,
                figure.p99_ms,
                figure.cpu_all(),
                figure.memory.now_kib / 1024,
                figure.memory.peak_kib / 1024,
            );
            if figure.subject == FULL {
                println!("{:47} {} of the one that has not been in use", "", ratio(SERVICE));
            }
        }
        println!();
    }

    pub(crate) fn json(&self) -> Value {
        let memory = self
            .memory
            .iter()
            .map(|(when, memory)| json!({"when": when, "kib": memory.now_kib, "peak_kib": memory.peak_kib}));
        json!({
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "memory": memory.collect::<Vec<_>>(),
            "facts": self.facts,
        })
    }
}

/// A figure as it is printed: no more digits than it is good for.
fn brief(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => format!("{:.2}", number.as_f64().unwrap_or_default()),
        Value::Array(values) => values.iter().map(brief).collect::<Vec<_>>().join(" "),
        Value::Object(figures) => {
            let figures = figures.iter().map(|(name, figure)| format!("{name} {}", brief(figure)));
            figures.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}
