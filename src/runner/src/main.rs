//! The program `runner`.

use std::process::ExitCode;

use runner::cli::{self, Command};

fn main() -> ExitCode {
    let cli = cli::parse();
    cli::run(async {
        match cli.command {
            Command::Start(args) => cli::start::run(args).await,
            Command::Resume(args) => cli::resume::run(args).await,
            Command::Serve(args) => cli::serve::run(args).await,
            Command::Tool(args) => cli::tool::run(args).await,
            Command::Tools(args) => cli::tools::run(&args),
            Command::Ps(args) => Ok(cli::ps::run(args).await?),
            Command::Show(args) => Ok(cli::show::run(args).await?),
            Command::Logs(args) => Ok(cli::logs::run(args).await?),
            Command::Stop(args) => Ok(cli::stop::run(args).await?),
            Command::Kill(args) => Ok(cli::kill::run(args).await?),
            Command::Queue(args) => Ok(cli::queue::run(args).await?),
            Command::Locks(args) => Ok(cli::locks::run(args).await?),
            Command::Waits(args) => Ok(cli::waits::run(args).await?),
            Command::Calls(args) => Ok(cli::calls::run(args).await?),
            Command::Emit(command) => cli::emit::run(command).await,
            Command::Pause(args) => cli::pause::pause(args).await,
            Command::Unpause(args) => cli::pause::unpause(args).await,
            Command::Image(command) => cli::image::run(command).await,
            Command::Init(args) => cli::init::run(&args),
            Command::New(args) => cli::new::run(&args),
            Command::Validate(args) => cli::validate::run(&args).await,
            Command::Doctor(args) => cli::doctor::run(&args).await,
            Command::Completions(args) => cli::completions::run(&args),
        }
    })
}
