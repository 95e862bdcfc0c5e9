// Package check checks the files in deploy/ with the libraries of the programs that read them: the linter of docker
// build, the loader of docker compose, and the types of Kubernetes. The tests in cmd/e2e run these files.
package check

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// manifest returns an error with all mistakes that it finds in a file of manifests: unknown fields, invalid values,
// and violations of those rules of the API server that matter for our manifests.
func manifest(data []byte) error {
	var all []error
	for documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data))); ; {
		buffer := make([]byte, len(data))
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return errors.Join(all...)
		}
		if err != nil {
			return err
		}
		all = append(all, object(buffer[:n]))
	}
}

func object(data []byte) error {
	var kind meta.TypeMeta
	if err := strict.Unmarshal(data, &kind); err != nil {
		return err
	}
	var o meta.Object
	switch kind {
	case meta.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}:
		o = &core.ConfigMap{}
	case meta.TypeMeta{APIVersion: "v1", Kind: "Service"}:
		o = &core.Service{}
	case meta.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}:
		o = &apps.Deployment{}
	case meta.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}:
		o = &autoscaling.HorizontalPodAutoscaler{}
	case meta.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:
		o = &disruption.PodDisruptionBudget{}
	case meta.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:
		o = &networking.NetworkPolicy{}
	case meta.TypeMeta{APIVersion: "monitoring.coreos.com/v1", Kind: "ServiceMonitor"}:
		o = &monitoring.ServiceMonitor{}
	default:
		return fmt.Errorf("kind %s of %s has no check: add a case for it to the function object", kind.Kind, kind.APIVersion)
	}
	if err := strict.UnmarshalStrict(data, o); err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	at := field.NewPath(kind.Kind)
	problems := metavalidation.ValidateLabels(o.GetLabels(), at.Child("labels"))
	named := func(names []string, at *field.Path, value string) {
		for _, problem := range names {
			problems = append(problems, field.Invalid(at, value, problem))
		}
	}
	named(validation.IsDNS1123Subdomain(o.GetName()), at.Child("name"), o.GetName())
	switch o := o.(type) {
	case *core.ConfigMap:
		for key := range o.Data {
			named(validation.IsConfigMapKey(key), at.Child("data"), key)
		}
	case *core.Service:
		problems = append(problems, metavalidation.ValidateLabels(o.Spec.Selector, at.Child("selector"))...)
		for _, p := range o.Spec.Ports {
			named(validation.IsValidPortNum(int(p.Port)), at.Child("port"), fmt.Sprint(p.Port))
			named(validation.IsValidPortName(p.TargetPort.StrVal), at.Child("targetPort"), p.TargetPort.StrVal)
		}
	case *apps.Deployment:
		selector, err := meta.LabelSelectorAsSelector(o.Spec.Selector)
		if err != nil {
			return err
		}
		if selector.Empty() || !selector.Matches(labels.Set(o.Spec.Template.Labels)) {
			problems = append(problems, field.Invalid(at.Child("selector"), selector.String(), "the selector does not match the labels of the template"))
		}
		problems = append(problems, pod(at.Child("template"), o.Spec.Template)...)
	}
	return problems.ToAggregate()
}

func pod(at *field.Path, p core.PodTemplateSpec) (problems field.ErrorList) {
	problems = metavalidation.ValidateLabels(p.Labels, at.Child("labels"))
	add := func(value any, text string) { problems = append(problems, field.Invalid(at, value, text)) }
	var ports []string // the names of the ports of all containers, which have to be unique in the pod
	for _, c := range p.Spec.Containers {
		for _, problem := range validation.IsDNS1123Label(c.Name) {
			add(c.Name, problem)
		}
		if c.Image == "" {
			add(c.Name, "the container has no image")
		}
		if l := c.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Exec != nil && l.PreStop.Sleep != nil {
			add(c.Name, "preStop has both exec and sleep: use one of them")
		}
		var own []string
		for _, port := range c.Ports {
			for _, problem := range append(validation.IsValidPortName(port.Name), validation.IsValidPortNum(int(port.ContainerPort))...) {
				add(port, problem)
			}
			own = append(own, port.Name)
		}
		ports = append(ports, own...)
		for _, probe := range []*core.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
			if probe == nil {
				continue
			}
			if get := probe.HTTPGet; get == nil || !slices.Contains(own, get.Port.StrVal) || !strings.HasPrefix(get.Path, "/") {
				add(probe.HTTPGet, "the probe must be an httpGet of a named port of this container, with an absolute path")
			}
		}
		for _, mount := range c.VolumeMounts {
			if !slices.ContainsFunc(p.Spec.Volumes, func(v core.Volume) bool { return v.Name == mount.Name }) {
				add(mount.Name, "unknown volume: the pod has none with this name")
			}
			if !strings.HasPrefix(mount.MountPath, "/") {
				add(mount.MountPath, "the mount path must be absolute")
			}
		}
		for name, least := range c.Resources.Requests {
			if most, has := c.Resources.Limits[name]; has && least.Cmp(most) > 0 {
				add(least.String(), "the request for "+string(name)+" exceeds the limit")
			}
		}
	}
	if slices.Sort(ports); len(slices.Compact(ports)) != len(ports) {
		add(ports, "two ports have the same name")
	}
	return problems
}
