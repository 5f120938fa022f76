{{/* What every template names alike. */}}

{{- define "lakefold.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "lakefold.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "lakefold.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "lakefold.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "lakefold.selector" -}}
app.kubernetes.io/name: {{ include "lakefold.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: committer
{{- end -}}

{{- define "lakefold.maintainerSelector" -}}
app.kubernetes.io/name: {{ include "lakefold.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: maintainer
{{- end -}}

{{- define "lakefold.maintainerLabels" -}}
{{ include "lakefold.maintainerSelector" . }}
{{ include "lakefold.chartLabels" . }}
{{- end -}}

{{/* What selects the pods of committers, and of the maintainer if there is one. */}}
{{- define "lakefold.allPods" -}}
{{- if .Values.maintainer.enabled -}}
matchLabels:
  app.kubernetes.io/name: {{ include "lakefold.name" . }}
  app.kubernetes.io/instance: {{ .Release.Name }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [committer, maintainer]}
{{- else -}}
matchLabels:
  {{- include "lakefold.selector" . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The labels of the pod that `helm test` starts: the selector doesn't match them. */}}
{{- define "lakefold.testSelector" -}}
app.kubernetes.io/name: {{ include "lakefold.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end -}}

{{- define "lakefold.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "lakefold.labels" -}}
{{ include "lakefold.selector" . }}
{{ include "lakefold.chartLabels" . }}
{{- end -}}

{{/* The brokers' ports: those of the values, else those in the brokers' addresses, as a JSON list. */}}
{{- define "lakefold.kafkaPorts" -}}
{{- $ports := .Values.networkPolicy.kafkaPorts | default list }}
{{- if not $ports }}
{{- range splitList "," (.Values.kafka.bootstrapServers | default "") }}
{{- $port := regexFind ":[0-9]+$" (trim .) | trimPrefix ":" | default "9092" | int }}
{{- if not (has $port $ports) }}{{ $ports = append $ports $port }}{{ end }}
{{- end }}
{{- end }}
{{- $ports | toJson -}}
{{- end -}}

{{- define "lakefold.image" -}}
{{- include "lakefold.imageOf" (list . .Values.image) -}}
{{- end -}}

{{/* The name of an image of the values: `list CONTEXT IMAGE`. */}}
{{- define "lakefold.imageOf" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (index . 0).Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "lakefold.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "lakefold.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* A committer's environment variable for an option of the Kafka client. */}}
{{- define "lakefold.kafkaVariable" -}}
LAKEFOLD_KAFKA__{{ . | upper | replace "." "_" }}
{{- end -}}

{{/* One for an option of the object store. */}}
{{- define "lakefold.storageVariable" -}}
LAKEFOLD_STORAGE_OPTIONS__{{ . | upper }}
{{- end -}}

{{- define "lakefold.roots" -}}
{{- .Values.storage.roots | default (list (printf "file://%s" .Values.storage.mountPath)) | toJson -}}
{{- end -}}

{{/* Not empty where tables lie on a volume. */}}
{{- define "lakefold.onVolume" -}}
{{- if .Values.storage.existingClaim }}yes{{ end -}}
{{- range include "lakefold.roots" . | fromJsonArray }}{{ if hasPrefix "file://" . }}yes{{ end }}{{ end -}}
{{- end -}}

{{/* Not empty where tables lie in an object store. */}}
{{- define "lakefold.inStore" -}}
{{- range include "lakefold.roots" . | fromJsonArray }}{{ if not (hasPrefix "file://" .) }}yes{{ end }}{{ end -}}
{{- end -}}

{{/* The settings file. JSON's strings are TOML's, and so are its numbers, booleans and lists of them. */}}
{{- define "lakefold.settings" -}}
bootstrap_servers = {{ required "kafka.bootstrapServers: name the brokers, as host:port,…" .Values.kafka.bootstrapServers | toJson }}
group = {{ .Values.group | toJson }}
transactions_topic = {{ .Values.topics.transactions | toJson }}
outcomes_topic = {{ .Values.topics.outcomes | toJson }}
dead_letters_topic = {{ .Values.topics.deadLetters | toJson }}
topic_partitions = {{ .Values.topics.partitions | int }}
{{- with .Values.topics.replication }}
topic_replication = {{ . | int }}
{{- end }}
roots = {{ include "lakefold.roots" . }}
http_host = "0.0.0.0"
http_port = 8080
umask = {{ .Values.umask | toString | toJson }}
{{- if .Values.console.enabled }}
console = true
{{- end }}
{{- range $name, $value := .Values.settings }}
{{ $name }} = {{ $value | toJson }}
{{- end }}

[kafka]
{{- range $name, $value := .Values.kafka.options }}
{{ $name | toJson }} = {{ $value | toString | toJson }}
{{- end }}
{{- if .Values.maintainer.enabled }}
{{- with .Values.maintainer.policy }}

[maintenance]
{{- range $name, $value := . }}
{{ $name | toJson }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.storage.options }}

[storage_options]
{{- range $name, $value := . }}
{{ $name | toJson }} = {{ $value | toString | toJson }}
{{- end }}
{{- end }}
{{- end -}}
