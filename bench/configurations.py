"""The configurations of the processes that are compared, as templates of `string.Template`.

`$static` and `$live` are the ports of the two upstreams, `$port` is the one to listen on.
"""

from __future__ import annotations

ENVOY_MANAGER = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
    ".HttpConnectionManager"
)

DAEMON = """\
listen: 127.0.0.1:$port
admin: {listen: "127.0.0.1:$admin"}
providers:
  static: {upstream: "http://127.0.0.1:$static", dialect: openai}
  live: {upstream: "http://127.0.0.1:$live", dialect: openai}
defaults:
  limits: {in_flight: 8192}
dependencies:
  orders-db: {source: database, vendor: postgresql}
"""

_NGINX_TOP = """\
worker_processes 1;
master_process off;
daemon off;
pid $folder/$name.pid;
error_log stderr error;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path $folder/$name-body;
  proxy_temp_path $folder/$name-proxy;
  fastcgi_temp_path $folder/$name-fastcgi;
  uwsgi_temp_path $folder/$name-uwsgi;
  scgi_temp_path $folder/$name-scgi;
  keepalive_requests 100000000;
  keepalive_timeout 300s;
  client_max_body_size 0;
"""

NGINX_STATIC = (
    _NGINX_TOP.replace("$name", "static")
    + """\
  server {
    listen 127.0.0.1:$port backlog=4096;
    default_type application/json;
    location = /v1/chat/completions { return 200 '$completion'; }
    location = /v1/models { return 200 '$models'; }
  }
}
"""
)

NGINX = (
    _NGINX_TOP.replace("$name", "nginx")
    + """\
  upstream static { server 127.0.0.1:$static; keepalive 256; keepalive_requests 100000000; }
  upstream live { server 127.0.0.1:$live; keepalive 256; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:$port backlog=4096;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    location /static/ { proxy_pass http://static/; }
    location /live/ {
      proxy_pass http://live/;
      proxy_buffering off;
      proxy_request_buffering off;
    }
  }
}
"""
)

ENVOY = """\
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: $port}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": $manager
          stat_prefix: bench
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: /static/}
                route: {cluster: static, prefix_rewrite: /, timeout: 0s}
              - match: {prefix: /live/}
                route: {cluster: live, prefix_rewrite: /, timeout: 0s}
          http_filters:
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: static
    connect_timeout: 5s
    circuit_breakers: {thresholds: [{max_connections: 8192, max_requests: 8192}]}
    load_assignment:
      cluster_name: static
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $static}}}
  - name: live
    connect_timeout: 5s
    circuit_breakers: {thresholds: [{max_connections: 8192, max_requests: 8192}]}
    load_assignment:
      cluster_name: live
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $live}}}
"""

CADDY = """\
{
  admin off
  persist_config off
  auto_https off
  log {
    level ERROR
  }
}
http://127.0.0.1:$port {
  handle_path /static/* {
    reverse_proxy 127.0.0.1:$static {
      transport http {
        keepalive_idle_conns_per_host 256
      }
    }
  }
  handle_path /live/* {
    reverse_proxy 127.0.0.1:$live {
      transport http {
        keepalive_idle_conns_per_host 256
      }
    }
  }
}
"""
