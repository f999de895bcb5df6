//! Which etcd: the one named by endpoints, or the one of `--local`, and never either by accident.

use leasehold::etcd::Endpoint;

use crate::exit::Failure;

/// The etcd to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Endpoints(Vec<Endpoint>),
    Local,
}

pub(crate) const ENDPOINTS: &str = "ETCDCTL_ENDPOINTS";
pub(crate) const LOCAL: &str = "LEASEHOLD_LOCAL";

impl Site {
    /// Options win over variables. Two variables that contradict each other are refused: a lock must never quietly be
    /// another than the one meant.
    pub(crate) fn choose(
        endpoints: &[String],
        local: bool,
        endpoints_variable: Option<&str>,
        local_variable: Option<&str>,
    ) -> Result<Self, Failure> {
        if local {
            return Ok(Self::Local);
        }
        if !endpoints.is_empty() {
            return parse("--endpoints", &endpoints.join(","));
        }
        let endpoints = endpoints_variable.filter(|list| !list.trim().is_empty());
        match (endpoints, is_set(local_variable)?) {
            (Some(_), true) => Err(Failure::usage(format!(
                "both {ENDPOINTS} and {LOCAL} are set; unset one, or say --endpoints or --local"
            ))),
            (Some(list), false) => parse(ENDPOINTS, list),
            (None, true) => Ok(Self::Local),
            (None, false) => Err(Failure::usage(format!(
                "no etcd is named: give --endpoints HOST:PORT (or {ENDPOINTS}) for a lock among machines, or --local \
                 (or {LOCAL}=1) for one that excludes only this user on this machine"
            ))),
        }
    }
}

fn parse(setting: &str, list: &str) -> Result<Site, Failure> {
    let endpoints = Endpoint::list(list).map_err(|error| Failure::usage(format!("{setting}: {error}")))?;
    Ok(Site::Endpoints(endpoints))
}

fn is_set(variable: Option<&str>) -> Result<bool, Failure> {
    match variable.map(str::trim) {
        None | Some("" | "0" | "false") => Ok(false),
        Some("1" | "true") => Ok(true),
        Some(other) => {
            Err(Failure::usage(format!("{LOCAL}={other:?} means nothing; set it to 1, or unset it")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        endpoints: &[&str],
        local: bool,
        endpoints_variable: Option<&str>,
        local_variable: Option<&str>,
    ) -> Result<String, String> {
        let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        match Site::choose(&endpoints, local, endpoints_variable, local_variable) {
            Ok(Site::Local) => Ok("local".into()),
            Ok(Site::Endpoints(list)) => {
                Ok(list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            }
            Err(failure) => Err(failure.message),
        }
    }

    #[test]
    fn an_option_wins_over_a_variable() {
        assert_eq!(chosen(&["a:1,b:2", "c:3"], false, Some("d:4"), Some("1")), Ok("a:1 b:2 c:3".into()));
        assert_eq!(chosen(&[], true, Some("d:4"), None), Ok("local".into()));
        assert_eq!(chosen(&[], false, Some("d:4"), Some("0")), Ok("d:4".into()));
        assert_eq!(chosen(&[], false, Some(""), Some("1")), Ok("local".into()));
    }

    #[test]
    fn what_is_not_clear_is_refused() {
        let neither = chosen(&[], false, None, None).unwrap_err();
        assert!(neither.contains("--endpoints") && neither.contains("--local"), "{neither}");
        assert!(chosen(&[], false, Some("a:1"), Some("1")).unwrap_err().contains("unset one"));
        assert!(chosen(&[], false, None, Some("yes")).unwrap_err().contains("LEASEHOLD_LOCAL"));
        assert!(chosen(&["a"], false, None, None).unwrap_err().contains("--endpoints"));
        assert!(chosen(&[], false, Some("a"), None).unwrap_err().contains("ETCDCTL_ENDPOINTS"));
    }
}
