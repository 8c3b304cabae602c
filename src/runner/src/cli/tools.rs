//! `runner tools`: the tools and their schemas.

use std::io;

use serde_json::{Value, json};

use super::output;
use super::table::Style;
use crate::exit::Failure;
use crate::model::ToolDefinition;
use crate::tools::Registry;

/// Arguments of `runner tools`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  runner tools
  runner tools --json | jq -r '.[].name'")]
pub struct ToolsArgs {
    /// Print name, description and JSON Schema (2020-12) of each as a JSON array
    #[arg(long)]
    pub json: bool,
}

/// Prints the tools.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &ToolsArgs) -> Result<u8, Failure> {
    output::check(print(args.json))?;
    Ok(0)
}

fn print(json: bool) -> io::Result<()> {
    let definitions = Registry::session().definitions();
    if json {
        let tool =
            |tool: &ToolDefinition| json!({"name": tool.name, "description": tool.description, "schema": tool.schema});
        let all: Vec<Value> = definitions.iter().map(tool).collect();
        return output::json(&all);
    }
    let style = Style::of_stdout();
    definitions.iter().try_for_each(|tool| output::line(&described(tool, style)))
}

/// A tool for people: its name with its arguments, what it does, what each argument is.
fn described(tool: &ToolDefinition, style: Style) -> String {
    let required = tool.schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let mut head = style.bold(&tool.name);
    let mut lines = String::new();
    for (name, property) in tool.schema["properties"].as_object().into_iter().flatten() {
        let optional = if is_required(name) { "" } else { "?" };
        let kind = property["type"].as_str().unwrap_or("any");
        head += " ";
        head += name;
        head += optional;
        let what = property["description"].as_str().unwrap_or_default();
        lines.extend(["\n  ", name, ": ", kind, " — ", what]);
    }
    format!("{head}\n  {}{lines}\n", tool.description)
}
