//! Where the API server is and how it knows us: the service account of a pod, or a kubeconfig.
//!
//! The decision: credentials that are files are read again for each request, because Kubernetes
//! renews tokens. Programs that a kubeconfig names (`exec`) are not run.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use serde::Deserialize;

use super::pod_watcher::PodWatchError;
use crate::rest_client::{LineStream, RestClient, RestError, TlsIdentity};

/// Where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why there is no access to an API server.
#[derive(Debug, thiserror::Error)]
pub enum ApiAccessError {
    /// Neither in a pod nor with a kubeconfig.
    #[error(
        "no cluster: KUBERNETES_SERVICE_HOST is not set, so this is no pod with a service account; \
         pass --kubeconfig FILE"
    )]
    NoCluster,
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A kubeconfig is invalid, or has what is not supported.
    #[error("{}: {field}: {problem}", path.display())]
    Field {
        /// The kubeconfig.
        path: PathBuf,
        /// Where in it.
        field: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The address or the TLS settings are invalid.
    #[error(transparent)]
    Rest(#[from] RestError),
}

/// An API server, and what it is shown.
#[derive(Clone, Debug)]
pub struct ApiAccess {
    client: RestClient,
    token: BearerToken,
}

#[derive(Clone)]
enum BearerToken {
    Absent,
    Text(String),
    File(PathBuf),
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BearerToken")
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Kubeconfig {
    current_context: Option<String>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: ContextFields,
}

#[derive(Debug, Deserialize)]
struct ContextFields {
    cluster: String,
    user: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: ClusterFields,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterFields {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    user: UserFields,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct UserFields {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
    username: Option<String>,
}

impl ApiAccess {
    /// As a pod finds it; `read` reads an environment variable.
    ///
    /// # Errors
    /// This is no pod, or it has no service account.
    pub fn in_cluster(read: impl Fn(&str) -> Option<String>) -> Result<Self, ApiAccessError> {
        let host = read("KUBERNETES_SERVICE_HOST").ok_or(ApiAccessError::NoCluster)?;
        let port = read("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let folder = Path::new(SERVICE_ACCOUNT);
        let tls = TlsIdentity { authorities: read_file(&folder.join("ca.crt"))?, client: None };
        Ok(Self {
            client: RestClient::new(&format!("https://{host}:{port}"), &tls)?,
            token: BearerToken::File(folder.join("token")),
        })
    }

    /// As a kubeconfig says for `context`, or for its current one.
    ///
    /// # Errors
    /// The file cannot be read, or has a field that is invalid or not supported.
    pub fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<Self, ApiAccessError> {
        let config: Kubeconfig = serde_yaml_ng::from_str(&read_file(path)?)
            .map_err(|error| KubeconfigFile { path }.error("kubeconfig", &error.to_string()))?;
        KubeconfigFile { path }.access(&config, context)
    }

    /// The body of a response.
    pub(super) async fn get_body(&self, path: &str) -> Result<Bytes, PodWatchError> {
        Ok(self.client.get_body(path, &self.headers()?).await?)
    }

    /// The lines of a response that stays open.
    pub(super) async fn get_lines(&self, path: &str) -> Result<LineStream, PodWatchError> {
        Ok(self.client.get_lines(path, &self.headers()?).await?)
    }

    /// Headers of a request, with the token as it is now.
    fn headers(&self) -> Result<Vec<(&'static str, String)>, ApiAccessError> {
        let token = match &self.token {
            BearerToken::Absent => return Ok(Vec::new()),
            BearerToken::Text(text) => text.clone(),
            BearerToken::File(path) => read_file(path)?.trim().to_owned(),
        };
        Ok(vec![("authorization", format!("Bearer {token}"))])
    }
}

/// A kubeconfig, for its errors and for paths that are relative to it.
struct KubeconfigFile<'a> {
    path: &'a Path,
}

impl KubeconfigFile<'_> {
    fn error(&self, field: &str, problem: &str) -> ApiAccessError {
        let (path, field) = (self.path.to_owned(), field.to_owned());
        ApiAccessError::Field { path, field, problem: problem.to_owned() }
    }

    fn access(
        &self,
        config: &Kubeconfig,
        context: Option<&str>,
    ) -> Result<ApiAccess, ApiAccessError> {
        let name = context.or(config.current_context.as_deref());
        let name = name.ok_or_else(|| self.error("current-context", "missing; pass --context"))?;
        let absent =
            |field: &str, name: &str| self.error(field, &format!("none is named `{name}`"));
        let context = config.contexts.iter().find(|context| context.name == name);
        let context = &context.ok_or_else(|| absent("contexts", name))?.context;
        let cluster = config.clusters.iter().find(|cluster| cluster.name == context.cluster);
        let cluster = &cluster.ok_or_else(|| absent("clusters", &context.cluster))?.cluster;
        let anonymous = UserFields::default();
        let user = match &context.user {
            None => &anonymous,
            Some(name) => {
                let user = config.users.iter().find(|user| user.name == *name);
                &user.ok_or_else(|| absent("users", name))?.user
            }
        };
        let client = match cluster.server.starts_with("https:") {
            true => RestClient::new(&cluster.server, &self.tls_identity(cluster, user)?)?,
            false => RestClient::new(&cluster.server, &TlsIdentity::default())?,
        };
        Ok(ApiAccess { client, token: self.token(user)? })
    }

    fn tls_identity(
        &self,
        cluster: &ClusterFields,
        user: &UserFields,
    ) -> Result<TlsIdentity, ApiAccessError> {
        if cluster.insecure_skip_tls_verify {
            let problem = "not supported; name the authority in certificate-authority";
            return Err(self.error("insecure-skip-tls-verify", problem));
        }
        let authority = &cluster.certificate_authority;
        let authorities = self
            .text_or_data("certificate-authority", authority, &cluster.certificate_authority_data)?
            .ok_or_else(|| {
                self.error("certificate-authority", "missing; name the file of the authority")
            })?;
        let (file, data) = (&user.client_certificate, &user.client_certificate_data);
        let certificate = self.text_or_data("client-certificate", file, data)?;
        let key = self.text_or_data("client-key", &user.client_key, &user.client_key_data)?;
        Ok(TlsIdentity { authorities, client: certificate.zip(key) })
    }

    fn token(&self, user: &UserFields) -> Result<BearerToken, ApiAccessError> {
        let remedy = "not supported; use a token, a client certificate, or the address of \
                      `kubectl proxy` as server";
        for (field, is_there) in [
            ("exec", user.exec.is_some()),
            ("auth-provider", user.auth_provider.is_some()),
            ("username", user.username.is_some()),
        ] {
            if is_there {
                return Err(self.error(&format!("users[].user.{field}"), remedy));
            }
        }
        Ok(match (&user.token_file, &user.token) {
            (Some(file), _) => BearerToken::File(self.beside(file)),
            (None, Some(text)) => BearerToken::Text(text.clone()),
            (None, None) => BearerToken::Absent,
        })
    }

    /// PEM from a file or, first, from base64 in the kubeconfig.
    fn text_or_data(
        &self,
        field: &str,
        file: &Option<PathBuf>,
        data: &Option<String>,
    ) -> Result<Option<String>, ApiAccessError> {
        let Some(data) = data else {
            return file.as_ref().map(|file| read_file(&self.beside(file))).transpose();
        };
        let bytes = STANDARD.decode(data.trim()).ok();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let invalid = || self.error(&format!("{field}-data"), "expected base64 of PEM");
        text.map(Some).ok_or_else(invalid)
    }

    fn beside(&self, file: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(file)
    }
}

fn read_file(path: &Path) -> Result<String, ApiAccessError> {
    let failed = |source| ApiAccessError::File { path: path.to_owned(), source };
    std::fs::read_to_string(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(cluster: &str, user: &str) -> Result<ApiAccess, ApiAccessError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = format!(
            "current-context: c\ncontexts:\n- name: c\n  context: {{cluster: k, user: u, \
             namespace: ml}}\nclusters:\n- name: k\n  cluster: {cluster}\nusers:\n- name: u\n  \
             user: {user}\n"
        );
        std::fs::write(&path, text).unwrap();
        std::fs::write(folder.path().join("token"), "t2\n").unwrap();
        let access = ApiAccess::from_kubeconfig(&path, None)?;
        // The token is read while the folder is there.
        let _read = access.headers()?;
        Ok(access)
    }

    #[test]
    fn a_kubeconfig_names_server_and_token() {
        let proxy = "{server: 'http://127.0.0.1:8001'}";
        let with_token = access(proxy, "{token: t1}").unwrap();
        assert_eq!(with_token.headers().unwrap(), [("authorization", "Bearer t1".to_owned())]);
        assert!(access(proxy, "{tokenFile: token}").is_ok());
        assert_eq!(access(proxy, "{}").unwrap().headers().unwrap(), []);
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_field_and_a_remedy() {
        let tls = "{server: 'https://h:6443'}";
        for (cluster, user, expected) in [
            (tls, "{}", "certificate-authority: missing"),
            ("{server: 'https://h', insecure-skip-tls-verify: true}", "{}", "name the authority"),
            ("{server: 'https://h', certificate-authority-data: '%'}", "{}", "base64"),
            ("{server: 'https://h', certificate-authority: none.pem}", "{}", "none.pem"),
            ("{server: 'http://h'}", "{exec: {command: aws}}", "users[].user.exec"),
            ("{server: 'http://h'}", "{tokenFile: absent}", "absent"),
            ("{server: 'h'}", "{}", "invalid address"),
            ("{}", "{}", "missing field `server`"),
        ] {
            let error = access(cluster, user).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(matches!(ApiAccess::in_cluster(|_| None), Err(ApiAccessError::NoCluster)));
    }
}
