//! A page and its parts, in light and dark.

use std::fmt::Write;

use crate::replay::trace::BadRows;

const STYLE: &str = "
:root{color-scheme:light dark;--text:#1c2024;--dim:#5b6470;--back:#fff;--line:#d5dae0;--bar:#2f6fb3;--mark:#b3382f;
--c0:#2f6fb3;--c1:#d9822b;--c2:#3f8f4f;--c3:#b3382f;--c4:#7a5ab5;--c5:#2a8f96;--c6:#8c6b2f;--c7:#b4508f}
@media(prefers-color-scheme:dark){:root{--text:#e4e7eb;--dim:#9aa4b0;--back:#15181c;--line:#343b43;--bar:#69a5e3;--mark:#f0776c;
--c0:#69a5e3;--c1:#e9a45c;--c2:#74bd82;--c3:#f0776c;--c4:#a98be0;--c5:#62bfc6;--c6:#c9a763;--c7:#e08bc0}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);margin:2rem auto;max-width:75rem;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:0}h2{font-size:1.15rem;margin:2rem 0 .5rem}p{margin:.4rem 0}
.dim{color:var(--dim)}.scroll{overflow-x:auto}.warn{border-left:4px solid var(--mark);padding-left:.8rem}
table{border-collapse:collapse;font-size:.87rem}th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top;font-variant-numeric:tabular-nums}
th{color:var(--dim);font-weight:600}.t{text-align:left}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(26rem,1fr));gap:1rem 2rem}
figure{margin:0}figcaption{font-weight:600;font-size:.9rem;margin:.5rem 0}svg{width:100%;max-width:36rem;height:auto;display:block}td:not(.t){white-space:nowrap}
svg text{font:12px system-ui,sans-serif;fill:var(--text)}svg .dim{fill:var(--dim)}svg .bar{fill:var(--bar)}svg .axis{stroke:var(--line)}
svg .mark{stroke:var(--mark);stroke-dasharray:4 3;stroke-width:1.5}svg .marktext{fill:var(--mark);font-weight:600}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}.c5{fill:var(--c5)}.c6{fill:var(--c6)}.c7{fill:var(--c7)}
pre{background:color-mix(in srgb,var(--text) 6%,var(--back));padding:.8rem 1rem;overflow-x:auto;font-size:.87rem}
";

/// Text as HTML shows it; control characters, which HTML forbids, as U+FFFD.
pub(in crate::replay) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(character),
            _ if character.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            _ => safe.push(character),
        }
    }
    safe
}

/// A page that is being written.
#[derive(Debug)]
pub(in crate::replay) struct Page {
    html: String,
    in_figures: bool,
}

impl Page {
    pub(in crate::replay) fn new(title: &str, trace: &str) -> Self {
        let (title, trace) = (escape(title), escape(trace));
        Self {
            html: format!(
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                 <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
                 <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
                 <title>{title}: {trace}</title><style>{STYLE}</style></head><body>\n\
                 <h1>{title}</h1>\n<p class=\"dim\">{trace}</p>\n"
            ),
            in_figures: false,
        }
    }

    fn push(&mut self, html: &str) {
        if self.in_figures {
            self.html.push_str("</div>\n");
            self.in_figures = false;
        }
        self.html.push_str(html);
        self.html.push('\n');
    }

    pub(in crate::replay) fn heading(&mut self, text: &str) {
        self.push(&format!("<h2>{}</h2>", escape(text)));
    }

    pub(in crate::replay) fn paragraph(&mut self, text: &str) {
        self.push(&format!("<p>{}</p>", escape(text)));
    }

    pub(in crate::replay) fn warning(&mut self, text: &str) {
        self.push(&format!("<p class=\"warn\">{}</p>", escape(text)));
    }

    pub(in crate::replay) fn code(&mut self, text: &str) {
        self.push(&format!("<pre>{}</pre>", escape(text)));
    }

    pub(in crate::replay) fn pairs(&mut self, pairs: &[(String, String)]) {
        let all: Vec<String> = pairs
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        if !all.is_empty() {
            let text = escape(&all.join(" · "));
            self.push(&format!("<p class=\"dim\">{text}</p>"));
        }
    }

    pub(in crate::replay) fn notes(&mut self, notes: &[String]) {
        for note in notes {
            self.paragraph(note);
        }
    }

    /// The first `texts` columns are words, the others numbers.
    pub(in crate::replay) fn table(
        &mut self,
        head: &[&str],
        texts: usize,
        rows: impl Iterator<Item = Vec<String>>,
    ) {
        let cells = |tag: &str, row: &[&str]| -> String {
            let cell = |(index, text): (usize, &&str)| {
                let class = if index < texts { " class=\"t\"" } else { "" };
                format!("<{tag}{class}>{}</{tag}>", escape(text))
            };
            row.iter().enumerate().map(cell).collect()
        };
        let mut html = format!(
            "<div class=\"scroll\"><table><thead><tr>{}</tr></thead><tbody>",
            cells("th", head)
        );
        for row in rows {
            let row: Vec<&str> = row.iter().map(String::as_str).collect();
            // Writing to a String cannot fail.
            let _ = write!(html, "<tr>{}</tr>", cells("td", &row));
        }
        html.push_str("</tbody></table></div>");
        self.push(&html);
    }

    /// Figures that follow each other stand side by side.
    pub(in crate::replay) fn figure(&mut self, title: &str, svg: &str) {
        if !self.in_figures {
            self.html.push_str("<div class=\"figures\">\n");
            self.in_figures = true;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(
            self.html,
            "<figure><figcaption>{}</figcaption>{svg}</figure>",
            escape(title)
        );
    }

    pub(in crate::replay) fn bad_rows(&mut self, bad_rows: &BadRows) {
        if bad_rows.count == 0 {
            return;
        }
        self.heading("Rows that were left out");
        self.paragraph(&format!("{} in all; the first of them:", bad_rows.count));
        let rows = bad_rows
            .first
            .iter()
            .map(|(line, why)| vec![line.to_string(), why.clone()]);
        self.table(&["line", "what is wrong with it"], 2, rows);
    }

    pub(in crate::replay) fn finish(mut self) -> String {
        self.push("</body></html>");
        self.html
    }
}
