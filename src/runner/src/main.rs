//! The program `runner`.

use std::process::ExitCode;

use clap::Parser;
use runner::cli::{self, Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    cli::run(async {
        match cli.command {
            Command::Start(args) => cli::start::run(args).await,
            Command::Tool(args) => cli::tool::run(args).await,
            Command::Tools(args) => cli::tools::run(&args),
            Command::Ps(args) => Ok(cli::ps::run(args).await?),
            Command::Show(args) => Ok(cli::show::run(args).await?),
            Command::Logs(args) => Ok(cli::logs::run(args).await?),
            Command::Stop(args) => Ok(cli::stop::run(args).await?),
            Command::Image(command) => cli::image::run(command).await,
        }
    })
}
