//! An etcd that is looked at, without a session: nothing is left there, however this program ends.

use std::sync::Arc;

use futures_util::future::Either;
use leasehold::etcd::Etcd;
use leasehold::runtime::{Runtime, SystemRuntime, race};

use crate::access::Access;
use crate::exit::{Code, Failure};
use crate::local::{self, Membership};
use crate::site::Site;

/// A way to etcd, to ask it something.
#[derive(Debug)]
pub(crate) struct Visit {
    etcd: Arc<dyn Etcd>,
    local: Option<Membership>,
    /// What is asked about.
    what: String,
}

impl Visit {
    /// Opens the way. `what` is what will be asked about, for failures.
    pub(crate) async fn open(access: &Access, what: String) -> Result<Self, Failure> {
        let settled = access.settle()?;
        let (endpoints, local) = match &settled.site {
            Site::Endpoints(endpoints) => (endpoints.clone(), None),
            Site::Local => {
                let runtime = SystemRuntime::shared().map_err(|error| Failure::of_library(&what, &error))?;
                let until = runtime.now() + access.connect_timeout.0;
                let (endpoint, membership) = local::join(&*runtime, until, &what).await?;
                (vec![endpoint], Some(membership))
            }
        };
        Ok(Self { etcd: settled.client(endpoints, &what)?, local, what })
    }

    pub(crate) fn etcd(&self) -> Arc<dyn Etcd> {
        self.etcd.clone()
    }

    /// The answer to a question. Each call of it is bounded by `--connect-timeout`.
    pub(crate) async fn ask<T>(
        &mut self,
        question: impl Future<Output = leasehold::Result<T>>,
    ) -> Result<T, Failure> {
        let gone = async {
            match &mut self.local {
                Some(local) => local.server_gone().await,
                None => futures_util::future::pending().await,
            }
        };
        match race(gone, question).await {
            Either::Left(()) => Err(Failure::new(
                Code::UNREACHABLE,
                format!("{}: the etcd of --local has ended, and its locks with it", self.what),
            )),
            Either::Right(Ok(answer)) => Ok(answer),
            Either::Right(Err(error)) => {
                let mut failure = Failure::of_library(&self.what, &error);
                if failure.code == Code::UNREACHABLE {
                    failure.message += "; is it running, and is the address right?";
                }
                Err(failure)
            }
        }
    }
}
