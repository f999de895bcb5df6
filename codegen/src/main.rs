//! Writes `crates/leasehold-proto/src/generated` from the `.proto` files beside it; no protoc needed.
//!
//! `cargo run --manifest-path codegen/Cargo.toml` writes the files. With `--check` it compares them instead, and
//! fails if they differ.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/leasehold-proto");

fn main() -> Result<ExitCode> {
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        other => bail!("the only argument there is, is --check; got {other:?}"),
    };
    let home = Path::new(CRATE);
    let wanted = generate(&home.join("proto"))?;
    let folder = home.join("src/generated");
    let present = read(&folder)?;
    if check {
        return Ok(compare(&wanted, &present));
    }
    fs::create_dir_all(&folder)?;
    for (name, text) in &wanted {
        if present.get(name) != Some(text) {
            fs::write(folder.join(name), text)?;
        }
    }
    for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(folder.join(name))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The generated files, by name.
fn generate(protos: &Path) -> Result<BTreeMap<String, String>> {
    let descriptors = protox::compile([protos.join("rpc.proto")], [protos])?;
    let out = tempfile::tempdir()?;
    tonic_prost_build::configure()
        .out_dir(out.path())
        .emit_rerun_if_changed(false)
        // Which transport carries the calls is for the user of the crate to choose.
        .build_transport(false)
        // A server answers `Unimplemented` to what it leaves out.
        .generate_default_stubs(true)
        .bytes(".")
        // These hold passwords and tokens; the crate prints them itself, without.
        .skip_debug([
            "etcdserverpb.AuthenticateRequest",
            "etcdserverpb.AuthenticateResponse",
            "etcdserverpb.AuthUserAddRequest",
            "etcdserverpb.AuthUserChangePasswordRequest",
        ])
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .compile_fds(descriptors)?;
    read(out.path())
}

/// All files of a folder, by name; none if there is no folder.
fn read(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    if !folder.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        files.insert(name, text);
    }
    Ok(files)
}

fn compare(wanted: &BTreeMap<String, String>, present: &BTreeMap<String, String>) -> ExitCode {
    let mut names: Vec<_> = wanted.keys().chain(present.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| wanted.get(*name) != present.get(*name));
    if names.is_empty() {
        return ExitCode::SUCCESS;
    }
    for name in names {
        eprintln!("src/generated/{name} is not what the .proto files give; run the generator");
    }
    ExitCode::FAILURE
}
