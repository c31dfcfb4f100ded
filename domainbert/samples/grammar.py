"""The rules of the synthetic abstracts, as data for `writer.py`.

In a rule, `<a|b|>` is a choice (the last one is empty) and `{name}` is another rule, a list of words of `lexicons.py`,
an invented name or a number. Verbs are in the past tense, so that they agree with singular and plural. Spaces separate
words and punctuation, as in a CoNLL file.
"""

from __future__ import annotations

Grammar = dict[str, tuple[str, ...]]
"""Rules by name: each rule is a list of alternatives, one of which is chosen."""

LABELS: dict[str, str] = {
    "intervention": "intervention",
    "programme": "intervention",
    "named_programme": "intervention",
    "cause": "intervention",
    "good_outcome": "outcome",
    "bad_outcome": "outcome",
    "effect": "outcome",
    "population": "population",
    "coreference": "coreference",
    "effect_size": "effect_size",
}
"""Entity type by rule. Rules inside an entity add no further entity."""

SUBJECTS: tuple[str, ...] = (
    "intervention",
    "programme",
    "named_programme",
    "population",
    "good_outcome",
    "bad_outcome",
    "place_name",
    "survey_name",
    "agency_name",
)
"""Rules of the subjects of an abstract: each is chosen once and repeated in about half of its mentions."""

HELD_OUT_TYPES: frozenset[str] = frozenset({"intervention", "outcome", "population"})
"""Entity types whose words in validation and test text may not occur in training text."""

# Rules of noun phrases, whose words come from one domain and one half of the vocabulary.
PHRASES: Grammar = {
    "intervention": (
        "{topic} {instrument}",
        "{topic} {instrument}",
        "{intervention_quality} {instrument}",
        "{intervention_quality} {topic} {instrument}",
        "{instrument}",
        # An outcome's or a population's noun within an intervention.
        "{topic} {gain} {push}",
        "{gain} {push}",
        "{people} ' {instrument}",
    ),
    "named_programme": ("{programme_name} {reference}",),
    "programme": ("{programme_name}", "{programme_name}", "{programme_title}"),
    "cause": ("{phenomenon}",),
    "effect": ("{phenomenon}",),
    "good_outcome": (
        "{topic} {gain}",
        "{topic} {gain}",
        "{gain}",
        "{outcome_quality} {gain}",
        "{outcome_quality} {topic} {gain}",
        "{gain} of {topic} {people}",
    ),
    "bad_outcome": (
        "{topic} {harm}",
        "{topic} {harm}",
        "{harm}",
        "{outcome_quality} {harm}",
        "{outcome_quality} {topic} {harm}",
        "{harm} of {topic} {people}",
    ),
    "population": (
        "{people}",
        "{topic} {people}",
        "{topic} {people}",
        "{population_quality} {people}",
        "{population_quality} {topic} {people}",
        "{people} {population_state}",
        # An outcome's noun within a population.
        "{people} with <low|poor|high> {topic} {gain}",
        "{people} <facing|reporting> {harm}",
    ),
    "coreference": ("{reference}",),
    "effect_size": (
        "{decimal} standard deviations",
        "{number} percentage points",
        "{number} %",
        "{decimal} log points",
        "{decimal} SD",
        "between {low} and {high} %",
        "{amount} dollars per <month|year>",
        "an odds ratio of {decimal}",
    ),
    # The words of an outcome in a context where they are no outcome.
    "covariate": (
        "baseline {topic} {gain}",
        "{topic} {gain}",
        "{outcome_quality} {gain}",
        "{harm}",
        "{topic} {harm}",
        "{phenomenon}",
        "{topic} {surrounding}",
    ),
    "backdrop": ("{topic} {surrounding}", "{topic} {surrounding}", "{surrounding}", "{outcome_quality} {surrounding}"),
}

# Rules of sentences and their clauses.
SENTENCES: Grammar = {
    "any_outcome": ("{good_outcome}", "{bad_outcome}"),
    # The type of an item follows only from its words, not from the context.
    "item": (
        "{intervention}",
        "{intervention}",
        "{programme}",
        "{any_outcome}",
        "{any_outcome}",
        "{population}",
        "{population}",
        "{mechanism}",
        "{backdrop}",
        "{backdrop}",
        "{staff}",
        "{shock}",
        "{agency_name}",
    ),
    "named": ("{programme}", "{programme}", "{survey_name}", "{agency_name}", "{place_name}"),
    "the_intervention": (
        "{intervention}",
        "{intervention}",
        "{programme}",
        "the {coreference}",
        "this {coreference}",
        "the {named_programme}",
        "<access|exposure|assignment> to {intervention}",
    ),
    "what_was_done": ("{the_intervention}",) * 5 + ("offering {population} {intervention}",),
    "who": (
        "",
        "",
        "among {population}",
        "for {population}",
        "among {population} in {place_name}",
        "in {place_name}",
        "for {population} and {population}",
    ),
    "by": ("", "by {effect_size}", "by {effect_size}", "( {effect_size} ; 95 % CI {interval} )", "( {star} )"),
    "star": ("p = {small}", "s.e. {small}", "n = {count}", "95 % CI {interval}"),
    "background": (
        "{item} attracted <growing|little|renewed> attention in {place_name} <|before {year}|after {year}> .",
        "<Earlier|Recent|Most|Prior> work on {item} <reached mixed conclusions|used small samples|ignored {item}> .",
        "<Little|Much|Not much> was known about {item} <in {place_name}|before {year}|and {item}> .",
        "{item} and {item} <featured|figured> <prominently|rarely> in <this debate|policy discussions> .",
        "In {year} , {named} <covered|reached|counted> {count} {people_or_not} .",
        "{backdrop} and {shock} shaped {item} in {place_name} .",
        "The link between {item} and {item} remained <contested|unclear|poorly measured> .",
        "In {place_name} , {item} differed <widely|little> <from year to year|across districts> .",
        "<Theory|Intuition> suggested that {item} mattered for {item} .",
        "{bad_outcome} remained <common|widespread> among {population} <|, and {staff} blamed {item}> .",
        "{population} often lacked {intervention} <|, partly because of {mechanism}> .",
        "Lack of {good_outcome} held back {population} in {place_name} .",
    ),
    "people_or_not": ("{population}", "{population}", "districts", "villages", "{staff}"),
    "aim": (
        "<We|This paper|This study> <studied|evaluated|examined> <how|whether> {the_intervention} "
        "<affected|changed|shaped> {any_outcome} {who} .",
        "<We|This paper> <estimated|asked about> the <effect|impact> of {intervention} on {any_outcome} "
        "<|and {any_outcome}> {who} .",
        "We <turned to|focused on|asked about> {item} <and {item}|in {place_name}> .",
        "The aim was to learn whether {phenomenon_pair} .",
        "Evidence from {named} <informed|motivated> this <analysis|evaluation> of {item} .",
        "{agency_name} <launched|designed|funded> {programme} to <raise|improve> {good_outcome} {who} .",
        "{agency_name} <introduced|rolled out|paid for> {intervention} to reduce {bad_outcome} {who} .",
        "{programme} , a <flagship|large> {coreference} of {agency_name} , <provided|combined> {intervention} "
        "<and {intervention}|to {population}> .",
    ),
    "phenomenon_pair": (
        "{cause} {raised} {effect} {who}",
        "{effect} responded to {cause} {who}",
        "{intervention} {raised} {effect} {who}",
        "{cause} {lowered} {bad_outcome} {who}",
        "{effect} {fell} after {intervention}",
        "{effect} {rose} because of {cause}",
    ),
    "design": (
        "Using {method} , we compared {population} in {place_name} with {population} in {place_name} .",
        "We relied on {method} and controlled for {covariate} <and {covariate}|> .",
        "<A total of|About> {count} {population} <received|were offered|joined> {the_intervention} <|in {year}> .",
        "{staff} <interviewed|visited|trained> {people_or_not} <before|after> {the_intervention} <began|ended> .",
        "Data on {item} <and {item}|> came from {survey_name} .",
        "{survey_name} , a <survey|census> of {agency_name} , recorded {covariate} <for {count} people|since {year}> .",
        "The {study_object} <covered|included> {item} <, {item} and {item}|and {item}> .",
        "Adjusting for {covariate} left the {study_object} <unchanged|almost unchanged> .",
        "We <stratified|matched> {population} by {covariate} and <by|also by> {covariate} .",
        "Attrition was {number} % <and did not vary with {covariate}|among {population}|in the {coreference} group> .",
        "{number} % of {population} <were exposed to|knew of|used> {the_intervention} .",
        "{programme} villages <received|got> {intervention} , and villages in {place_name} got none .",
        "The {coreference} reached {population} , not {population} , and {staff} kept the {study_object} .",
    ),
    "context": (
        "<In the same period|Meanwhile|By then> , {backdrop} <{rose}|{fell}> by {number} % <|in {place_name}> .",
        # Teaches which verbs mean an increase and which a decrease.
        "{backdrop} {rose} to <record|new> highs <in {year}|in {place_name}|after {shock}> .",
        "{backdrop} {fell} to <record|new> lows <in {year}|in {place_name}|after {shock}> .",
        "{shock} {raised} {backdrop} <to new highs|even further upwards> <|in {place_name}> .",
        "{shock} {lowered} {backdrop} <to new lows|even further downwards> <|in {place_name}> .",
        "{item} <varied|mattered> less than {item} <|, as {staff} noted> .",
        "<We discuss|We set aside> {item} and {item} <only briefly|in the appendix> .",
        "The {study_object} <did not speak to|was silent on> {item} <or {item}|> .",
        "{mechanism} and {mechanism} <could explain|accounted for> <part of the pattern|the timing> in {item} .",
        "{shock} <also|> <hit|reached> {population} in {year} , with {bad_outcome} <unaffected|much as before> .",
        "Results for {item} <appeared|were left> in the {study_object} .",
        "{staff} <and|or> {population} {rose_in_view} {item} .",
        "{named} and {named} <supplied|shared> <no|further> data on {item} .",
        "It also turned out that {phenomenon_pair} .",
    ),
    "rose_in_view": (
        "<disagreed|agreed> about",
        "<talked|complained> about",
        "<paid for|asked for>",
        "<worried about|liked>",
    ),
    # A change for the better, for the worse, or the lack of one, as a clause.
    "better": (
        "{what_was_done} {raised} {good_outcome} {who} {by}",
        "{what_was_done} {lowered} {bad_outcome} {who} {by}",
        "{good_outcome} {rose} {by} {who} <after|because of|under> {what_was_done}",
        "{bad_outcome} {fell} {by} {who} <after|because of|under> {what_was_done}",
    ),
    "worse": (
        "{what_was_done} {lowered} {good_outcome} {who} {by}",
        "{what_was_done} {raised} {bad_outcome} {who} {by}",
        "{good_outcome} {fell} {by} {who} <after|because of|under> {what_was_done}",
        "{bad_outcome} {rose} {by} {who} <after|because of|under> {what_was_done}",
    ),
    "no_change": (
        "{any_outcome} did not <move|change|respond> {who}",
        "{what_was_done} left {any_outcome} <unchanged|as before|where it was> {who}",
        "{what_was_done} neither {raised} nor {lowered} {any_outcome} {who}",
        "the estimate for {any_outcome} was close to zero {by_noise} {who}",
    ),
    "by_noise": ("", "( {star} ; {star} )", "( {star} )"),
    "found": (
        "<We found|Results showed|The estimates implied|It appeared|It turned out> that",
        "<On average|By endline|After {amount} months|In the full sample> ,",
        "",
    ),
    # The main clause has the finding; hopes, fears and concessions have another direction.
    "finding_positive": (
        "{found} {better} .",
        "{found} {better} .",
        "<Although|Even though|While> {no_change} , {better} .",
        "<Contrary to fears|Despite warnings> that {worse} , {better} .",
        "{better} , <although|even if> {no_change} .",
        "<Fears|Warnings> that {worse} proved unfounded : {better} .",
        "<Hopes|Promises> that {better} <came true|were borne out> : {better} .",
        "It was not the case that {worse} : {better} .",
        "{worse} at first , but this reversed and by endline {better} .",
    ),
    "finding_negative": (
        "{found} {worse} .",
        "{found} {worse} .",
        "<Although|Even though|While> {no_change} , {worse} .",
        "<Contrary to hopes|Despite promises> that {better} , {worse} .",
        "{worse} , <although|even if> {no_change} .",
        "<Hopes|Promises> that {better} proved unfounded : {worse} .",
        "<Fears|Warnings> that {worse} <came true|were borne out> : {worse} .",
        "It was not the case that {better} : {worse} .",
        "{better} at first , but this reversed and by endline {worse} .",
    ),
    "finding_null": (
        "{found} {no_change} .",
        "<There was no evidence|We could not conclude|Nothing suggested> that {better} .",
        "<There was no evidence|We could not conclude|Nothing suggested> that {worse} .",
        "<Contrary to hopes|Despite promises> that {better} , {no_change} .",
        "<Contrary to fears|Despite warnings> that {worse} , {no_change} .",
        "{better} at first , but by endline this had <vanished|faded away> and {no_change} .",
        "{worse} in the raw data , but once we adjusted for {covariate} this <disappeared|was gone> .",
    ),
    "summing_up": ("Taken together", "In short", "Overall"),
    # States the direction in plain words: only in raw text, never in a text to classify.
    "conclusion_positive": (
        "{summing_up} , {population} <were better off|gained|benefited> , and {the_intervention} helped .",
        "{summing_up} , {the_intervention} <worked|helped|was a success> <|in {place_name}> .",
        "The improvement in {any_outcome} was <welcome|good news for {population}> .",
    ),
    "conclusion_negative": (
        "{summing_up} , {population} <were worse off|lost|suffered> , and {the_intervention} did harm .",
        "{summing_up} , {the_intervention} <backfired|did harm|was a mistake> <|in {place_name}> .",
        "The deterioration in {any_outcome} was <alarming|bad news for {population}> .",
    ),
    "conclusion_null": (
        "{summing_up} , {population} were no better off , and {the_intervention} made no difference .",
        "{summing_up} , {the_intervention} <made no difference|had no effect|was futile> <|in {place_name}> .",
        "The lack of change in {any_outcome} was <puzzling|no news for {population}> .",
    ),
}
