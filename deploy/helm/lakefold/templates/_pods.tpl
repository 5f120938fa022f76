{{/* Parts of the pods of committers and of the maintainer. */}}

{{- define "lakefold.identity" -}}
serviceAccountName: {{ include "lakefold.serviceAccount" . }}
automountServiceAccountToken: false
# A Service named lakefold-http would otherwise say LAKEFOLD_HTTP_PORT=tcp://…
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{- define "lakefold.environment" -}}
# Not as an argument, so that `kubectl exec … lakefold status` finds the settings too.
- name: LAKEFOLD_CONFIG
  value: /etc/lakefold/committer.toml
{{- range $option, $key := .Values.kafka.secretOptions }}
- name: {{ include "lakefold.kafkaVariable" $option }}
  valueFrom:
    secretKeyRef:
      name: {{ required "kafka.existingSecret: name the Secret that kafka.secretOptions are in" $.Values.kafka.existingSecret }}
      key: {{ $key }}
{{- end }}
{{- range $option, $key := .Values.storage.secretOptions }}
- name: {{ include "lakefold.storageVariable" $option }}
  valueFrom:
    secretKeyRef:
      name: {{ required "storage.existingSecret: name the Secret that storage.secretOptions are in" $.Values.storage.existingSecret }}
      key: {{ $key }}
{{- end }}
{{- end -}}

{{- define "lakefold.mounts" -}}
- name: settings
  mountPath: /etc/lakefold/committer.toml
  subPath: committer.toml
  readOnly: true
{{- if include "lakefold.onVolume" . }}
- name: tables
  mountPath: {{ .Values.storage.mountPath }}
{{- end }}
- name: tmp
  mountPath: /tmp
{{- if .Values.kafka.tls.existingSecret }}
- name: tls
  mountPath: {{ .Values.kafka.tls.mountPath }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "lakefold.volumes" -}}
- name: settings
  configMap:
    name: {{ include "lakefold.fullname" . }}
{{- if include "lakefold.onVolume" . }}
- name: tables
  persistentVolumeClaim:
    claimName: {{ .Values.storage.existingClaim | default (printf "%s-tables" (include "lakefold.fullname" .)) }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- with .Values.kafka.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ . }}
    defaultMode: 288
{{- end }}
{{- with .Values.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "lakefold.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
