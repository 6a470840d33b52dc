"""What the peers of the race are configured with, as templates of `string.Template`.

`$static` and `$live` are the ports of the two upstreams, `$port` is the one to listen on.
"""

from __future__ import annotations

from bench import configurations

DAEMON = """\
listen: 127.0.0.1:$port
admin: {listen: "127.0.0.1:$admin"}
providers:
  static: {upstream: "http://127.0.0.1:$static", dialect: openai}
  live:
    upstream: "http://127.0.0.1:$live"
    dialect: openai
    breaker: {consecutive_failures: 5, open_for: 10s}
"""

NGINX = configurations.NGINX.replace(
    "server 127.0.0.1:$live;", "server 127.0.0.1:$live max_fails=5 fail_timeout=10s;"
).replace(
    "      proxy_buffering off;",
    "      proxy_next_upstream error timeout http_500 http_502 http_503 non_idempotent;\n"
    "      proxy_buffering off;",
)

HAPROXY = """\
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  http-reuse always
  option http-no-delay
frontend in
  bind 127.0.0.1:$port
  use_backend static if { path_beg /static/ }
  use_backend live if { path_beg /live/ }
backend static
  http-request replace-path /static/(.*) /\\1
  server one 127.0.0.1:$static
backend live
  http-request replace-path /live/(.*) /\\1
  server one 127.0.0.1:$live check inter 10s rise 1 observe layer7 error-limit 5 on-error mark-down
"""

ENVOY = (
    configurations.ENVOY.replace("$manager", configurations.ENVOY_MANAGER)
    + """\
    outlier_detection:
      consecutive_5xx: 5
      interval: 1s
      base_ejection_time: 10s
      max_ejection_percent: 100
    common_lb_config: {healthy_panic_threshold: {value: 0}}
"""
)

CADDY = configurations.CADDY.replace(
    """\
    reverse_proxy 127.0.0.1:$live {
""",
    """\
    reverse_proxy 127.0.0.1:$live {
      flush_interval -1
      fail_duration 10s
      max_fails 5
      unhealthy_status 5xx
""",
)

LITELLM = """\
model_list:
  - model_name: gpt-bench-mini
    litellm_params:
      model: openai/gpt-bench-mini
      api_base: http://127.0.0.1:$static/v1
      api_key: sk-race
  - model_name: gpt-stream
    litellm_params:
      model: openai/gpt-stream
      api_base: http://127.0.0.1:$live/v1
      api_key: sk-race
  - model_name: gpt-demo
    litellm_params:
      model: openai/gpt-demo
      api_base: http://127.0.0.1:$live/v1
      api_key: sk-race
  - model_name: "*"
    litellm_params:
      model: openai/*
      api_base: http://127.0.0.1:$live/v1
      api_key: sk-race
router_settings:
  num_retries: 0
  allowed_fails: 5
  cooldown_time: 10
litellm_settings:
  num_retries: 0
  telemetry: false
"""
