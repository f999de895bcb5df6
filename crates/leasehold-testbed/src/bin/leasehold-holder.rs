//! `leasehold-holder`: takes a lock and holds it, or takes turns with others; see `leasehold_testbed::holder`.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold_testbed::holder::main()
}
