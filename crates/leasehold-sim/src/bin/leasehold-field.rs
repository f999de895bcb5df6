//! Runs Leasehold's locks on a real etcd cluster under faults; see [`leasehold_sim::field`].

fn main() -> std::process::ExitCode {
    leasehold_sim::field::main()
}
