// Calls an extender with kube-scheduler's own client code and prints what kube-scheduler would
// see, as JSON: extender_client <urlPrefix> <nodeCacheCapable: true|false>.
//
// Three nodes n1, n2, n3 carry one running pod each (victim-n1, ...). The pods that are asked about
// are named on standard input, one a line.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

type seen struct {
	Pod                 string
	Kept                []string
	Failed              map[string]string
	Unresolvable        map[string]string
	FilterError         string
	Scores              map[string]int64
	PrioritizeError     string
	BindError           string
	Victims             map[string][]string
	ProcessPreemptError string
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func pod(name, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "vision", UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			SchedulerName: "sluice",
			NodeName:      node,
			Containers:    []v1.Container{{Name: "c", Image: "busybox"}},
		},
	}
}

func main() {
	extender, err := scheduler.NewHTTPExtender(&config.Extender{
		URLPrefix:        os.Args[1],
		FilterVerb:       "filter",
		PrioritizeVerb:   "prioritize",
		BindVerb:         "bind",
		PreemptVerb:      "preempt",
		Weight:           1,
		HTTPTimeout:      metav1.Duration{Duration: 10 * time.Second},
		NodeCacheCapable: os.Args[2] == "true",
	})
	if err != nil {
		panic(err)
	}
	var running []*v1.Pod
	var objects []*v1.Node
	for _, name := range []string{"n1", "n2", "n3"} {
		running = append(running, pod("victim-"+name, name))
		objects = append(objects, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	snapshot := cache.NewSnapshot(running, objects)
	var nodes []fwk.NodeInfo
	for _, object := range objects {
		info := framework.NewNodeInfo()
		info.SetNode(object)
		nodes = append(nodes, info)
	}
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := out.Encode(ask(extender, pod(lines.Text(), ""), nodes, running, snapshot)); err != nil {
			panic(err)
		}
	}
}

func ask(
	extender fwk.Extender, asked *v1.Pod, nodes []fwk.NodeInfo, running []*v1.Pod, snapshot fwk.NodeInfoLister,
) seen {
	result := seen{Pod: asked.Name, Kept: []string{}, Scores: map[string]int64{}, Victims: map[string][]string{}}
	kept, failed, unresolvable, err := extender.Filter(asked, nodes)
	for _, node := range kept {
		result.Kept = append(result.Kept, node.Node().Name)
	}
	result.Failed, result.Unresolvable, result.FilterError = failed, unresolvable, text(err)

	scores, _, err := extender.Prioritize(asked, nodes)
	if scores != nil {
		for _, score := range *scores {
			result.Scores[score.Host] = score.Score
		}
	}
	result.PrioritizeError = text(err)

	result.BindError = text(extender.Bind(&v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: asked.Name, Namespace: asked.Namespace, UID: asked.UID},
		Target:     v1.ObjectReference{Kind: "Node", Name: "n2"},
	}))

	candidates := map[string]*extenderv1.Victims{}
	for _, victim := range running {
		candidates[victim.Spec.NodeName] = &extenderv1.Victims{Pods: []*v1.Pod{victim}, NumPDBViolations: 1}
	}
	victims, err := extender.ProcessPreemption(asked, candidates, snapshot)
	for node, found := range victims {
		names := []string{}
		for _, victim := range found.Pods {
			names = append(names, victim.Name)
		}
		sort.Strings(names)
		result.Victims[node] = names
	}
	result.ProcessPreemptError = text(err)
	return result
}
