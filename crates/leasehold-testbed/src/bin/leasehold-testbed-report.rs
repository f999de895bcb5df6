//! `leasehold-testbed-report FILE`: sums up in one line which real parts a test run used (see `requirement`).

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!(
            "usage: leasehold-testbed-report FILE, where FILE is what LEASEHOLD_REPORT named during the tests"
        );
        return ExitCode::from(2);
    };
    match std::fs::read_to_string(&file) {
        Ok(report) => println!("{}", leasehold_testbed::requirement::summary(&report)),
        // Nothing was written: no test asked for a real part.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("{}", leasehold_testbed::requirement::summary(""));
        }
        Err(error) => {
            eprintln!("cannot read {}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
