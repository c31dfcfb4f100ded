"""The words of the synthetic abstracts, written for this project.

A `Domain` is a field of impact evaluation. Its topics ("maize") combine with head nouns that determine the type: maize
*yields* are an outcome, maize *vouchers* an intervention, maize *growers* a population, maize *auctions* no entity.
`GENERAL` has the words that all domains use. No word is in two lists of heads, so each head has one meaning.
"""

from __future__ import annotations

from dataclasses import dataclass


def _words(text: str) -> tuple[str, ...]:
    """Split a text at commas; a word may contain spaces."""
    return tuple(" ".join(word.split()) for word in text.split(","))


@dataclass(frozen=True)
class Domain:
    """The words of one field."""

    topic: tuple[str, ...]
    """Modifiers that combine with every head of the domain."""
    gain: tuple[str, ...]
    """Heads of outcomes whose increase is good."""
    harm: tuple[str, ...]
    """Heads of outcomes whose increase is bad."""
    instrument: tuple[str, ...]
    """Heads of interventions."""
    people: tuple[str, ...]
    """Heads of populations."""
    surrounding: tuple[str, ...]
    """Heads of distractors, which are no entities."""


DOMAINS: dict[str, Domain] = {
    "agriculture": Domain(
        topic=_words(
            """maize, sorghum, cassava, rice, millet, cotton, coffee, cocoa, groundnut, cowpea, sesame, banana, wheat,
            dairy, poultry, goat, vegetable, fodder, soil, irrigation, orchard, yam, tea, barley"""
        ),
        gain=_words(
            """yields, harvests, output, productivity, revenue, margins, acreage, fertility, quality, surplus,
            diversification, germination, profitability, throughput"""
        ),
        harm=_words(
            """losses, spoilage, erosion, infestation, shortfalls, wastage, mortality, degradation, blight, salinity,
            contamination, abandonment"""
        ),
        instrument=_words(
            """vouchers, extension visits, field schools, input packs, subsidies, demonstration plots, seed kits, price
            guarantees, buyback contracts, cooperatives, advisory calls, warehouse receipts, leasing, agronomy
            lessons"""
        ),
        people=_words(
            """growers, smallholders, farmers, herders, tenants, sharecroppers, planters, pastoralists, gardeners,
            fieldworkers, breeders, cultivators, outgrowers, homesteaders"""
        ),
        surrounding=_words(
            """auctions, tariffs, varieties, traders' associations, ministries, calendars, export quotas, pests, supply
            chains, exchanges, wholesalers' stocks, futures, atlases, boards"""
        ),
    ),
    "schooling": Domain(
        topic=_words(
            """primary, lower-secondary, preschool, reading, mathematics, science, vocational, boarding, rural-school,
            girls', evening, bilingual, exam, classroom, university, kindergarten, writing, language,
            apprenticeship, literacy"""
        ),
        gain=_words(
            """attendance, enrolment, completion, test scores, fluency, graduation, attainment, readiness, proficiency,
            progression, comprehension, retention, aspirations, engagement"""
        ),
        harm=_words(
            """dropout, repetition, absenteeism, truancy, failure rates, overcrowding, exclusion, bullying, lateness,
            disengagement, expulsions, underachievement"""
        ),
        instrument=_words(
            """scholarships, tutoring, fee waivers, school meals, coaching, textbooks, uniforms, bursaries, tablets,
            remedial classes, stipends, mentoring, parent meetings, computer labs"""
        ),
        people=_words(
            """pupils, students, teachers, learners, headteachers, apprentices, graduates, freshmen, schoolgirls,
            schoolboys, trainees, instructors, undergraduates, classmates"""
        ),
        surrounding=_words(
            """curricula, syllabuses, inspectorates, terms, unions, timetables, buildings, examination boards,
            admission rules, faculties, playgrounds, legislation, journals, budgets"""
        ),
    ),
    "health": Domain(
        topic=_words(
            """malaria, antenatal, maternal, neonatal, measles, tuberculosis, vaccine, nutrition, sanitation,
            diarrhoea, handwashing, dental, mental-health, cholera, hypertension, diabetes, contraceptive, clinic,
            breastfeeding, anaemia"""
        ),
        gain=_words(
            """coverage, uptake, adherence, recovery, survival, weight gain, detection, wellbeing, knowledge, immunity,
            birthweight, visits, remission, screening rates"""
        ),
        harm=_words(
            """incidence, prevalence, deaths, symptoms, stunting, complications, relapse, wasting, stigma, morbidity,
            transmission, hospitalisation, resistance, fevers"""
        ),
        instrument=_words(
            """bed nets, home visits, counselling, reminders, supplements, mobile clinics, hotlines, fortification,
            water filters, latrine construction, deworming, co-payment relief, chlorine dispensers, nurse training"""
        ),
        people=_words(
            """mothers, infants, patients, caregivers, toddlers, midwives, newborns, nurses, adolescents, widowers,
            outpatients, grandmothers, survivors, diabetics"""
        ),
        surrounding=_words(
            """laboratories, wards, guidelines, diagnostics, registries, pharmacies, outbreaks, strains, procurement,
            seasonality, protocols, insurers, cold chains, committees"""
        ),
    ),
    "enterprise": Domain(
        topic=_words(
            """weaving, carpentry, tailoring, retail, textile, garment, pottery, street-food, repair, construction,
            tourism, transport, handicraft, brewing, metalwork, catering, bakery, leather, wholesale, furniture"""
        ),
        gain=_words(
            """profits, earnings, sales, employment, wages, turnover, investment, hiring, orders, formality,
            innovation, working hours, exports, job satisfaction"""
        ),
        harm=_words(
            """closures, layoffs, unemployment, injuries, bankruptcies, underemployment, arrears, informality, defects,
            idleness, delays, exhaustion"""
        ),
        instrument=_words(
            """grants, business training, consulting, wage subsidies, incubators, tool loans, job fairs, trade credit,
            start-up kits, certification, placement services, tax holidays, equipment gifts, internships"""
        ),
        people=_words(
            """firms, artisans, entrepreneurs, shopkeepers, vendors, jobseekers, microenterprises, workshops,
            seamstresses, labourers, exporters, start-ups, employees, freelancers"""
        ),
        surrounding=_words(
            """competitors, permits, chambers of commerce, industrial zones, inspections, supply networks, brands,
            market days, import rules, landlords' fees, electricity cuts, catalogues, customs, guilds"""
        ),
    ),
    "finance": Domain(
        topic=_words(
            """mobile-money, microcredit, savings-group, pension, rainfall-insurance, remittance, housing,
            livestock-insurance, village-bank, payroll, micro-loan, digital-wallet, mortgage, bank, leasing-fund,
            burial-fund, deposit, debit-card"""
        ),
        gain=_words(
            """balances, repayment, deposits, access, consumption, net worth, resilience, asset holdings, liquidity,
            account use, expenditure, precautionary savings, solvency, creditworthiness"""
        ),
        harm=_words(
            """default, indebtedness, poverty, delinquency, overdrafts, distress sales, volatility, dormancy, pawning,
            insolvency, evictions, fraud"""
        ),
        instrument=_words(
            """transfers, matched accounts, fee rebates, agent networks, text-message nudges, loans, premium discounts,
            commitment devices, credit lines, interest caps, literacy workshops, guarantee funds, lotteries, cash
            bonuses"""
        ),
        people=_words(
            """borrowers, savers, policyholders, households, clients, pensioners, remitters, depositors, widows,
            debtors, account holders, renters, breadwinners, members"""
        ),
        surrounding=_words(
            """regulators, branches, exchange rates, bureaus, bond markets, central banks, ledgers, inflation targets,
            shareholders, brokers, reserves, interbank rates, audits, passbooks"""
        ),
    ),
    "governance": Domain(
        topic=_words(
            """municipal, village-council, property-tax, police, court, electoral, road, land-registry,
            procurement-office, parliamentary, district, customs-post, public-works, waste, community-radio,
            ombudsman, water-board, civil-service"""
        ),
        gain=_words(
            """turnout, compliance, trust, participation, transparency, accountability, responsiveness, collections,
            cooperation, representation, clearance rates, legitimacy, service delivery, satisfaction"""
        ),
        harm=_words(
            """corruption, evasion, crime, leakage, violence, backlogs, favouritism, bribery, disputes, vandalism,
            clientelism, abstention"""
        ),
        instrument=_words(
            """audit reforms, scorecards, town-hall meetings, gender quotas, hotspot patrols, titling, information
            flyers, body cameras, e-filing, performance pay, grievance desks, legal aid, decentralisation,
            monitoring apps"""
        ),
        people=_words(
            """voters, taxpayers, citizens, officials, mayors, residents, officers, judges, councillors, plaintiffs,
            squatters, volunteers, commuters, landowners"""
        ),
        surrounding=_words(
            """parties, archives, boundaries, constitutions, bylaws, newspapers, coalitions, censuses, tenders,
            headquarters, incumbency, precincts, gazettes, campaigns' slogans"""
        ),
    ),
    "environment": Domain(
        topic=_words(
            """forest, firewood, cookstove, solar, groundwater, river, mangrove, fishing, charcoal, wetland,
            household-waste, electricity, biogas, pasture, watershed, wildlife, coastal, grid, plastic, tree"""
        ),
        gain=_words(
            """cover, conservation, recycling, biodiversity, efficiency, regeneration, water quality, adoption,
            reliability, carbon storage, air quality, stocks, restoration, supply hours"""
        ),
        harm=_words(
            """emissions, depletion, smoke exposure, poaching, clearing, pollution, burning, outages, runoff,
            littering, overfishing, siltation"""
        ),
        instrument=_words(
            """user fees, payments for ecosystem services, seedlings, protected areas, patrols, metering, stove
            giveaways, bans, connection subsidies, labelling, buffer zones, lantern rentals, permits trading,
            awareness theatre"""
        ),
        people=_words(
            """fishers, villagers, foresters, communities, cooks, hunters, islanders, lamp users, charcoal makers,
            wardens, boat owners, grazers, divers, collectors"""
        ),
        surrounding=_words(
            """rainfall records, satellites, treaties, species lists, sensors, basins, lobbies, turbines, elevations,
            catchments, concessions, ecologists' reports, reservoirs, monsoons"""
        ),
    ),
    "family": Domain(
        topic=_words(
            """early-marriage, childcare, women's, parental, migrant, refugee, fatherhood, elder-care, couples', youth,
            teenage, orphan-care, return-migrant, dowry, family-planning, playgroup, nursery, sibling"""
        ),
        gain=_words(
            """autonomy, bargaining power, labour supply, mobility, bonding, self-esteem, integration, decision-making,
            vocabulary, happiness, agency, friendships, school readiness, remittances"""
        ),
        harm=_words(
            """fertility pressure, abuse, child labour, anxiety, depression, isolation, conflict, neglect, divorce,
            beatings, homesickness, discrimination"""
        ),
        instrument=_words(
            """parenting classes, day-care slots, safe spaces, allowances, life-skills clubs, empowerment sessions,
            relocation offers, dialogue groups, toy libraries, visas, paid leave, quizzes, role-model films,
            shelters"""
        ),
        people=_words(
            """brides, girls, couples, migrants, fathers, orphans, refugees, siblings, stepchildren, spouses,
            teenagers, in-laws, boys, daughters"""
        ),
        surrounding=_words(
            """customs officers, embassies, ceremonies, kinship ties, borders, lineages, wedding seasons, airports,
            dialects, rituals, genealogies, diaspora media, surnames, portraits"""
        ),
    ),
}

GENERAL: dict[str, tuple[str, ...]] = {
    "intervention_quality": _words(
        """conditional, unconditional, subsidised, free, targeted, community-led, digital, group-based, universal,
        voluntary, mandatory, door-to-door, means-tested, intensive, randomly allocated, interactive, low-cost,
        bundled, school-based, peer-led, refundable, weekly, government-run, performance-based"""
    ),
    "outcome_quality": _words(
        """household, adult, self-reported, seasonal, average, long-run, monthly, female, per-capita, local, daily,
        overall, formal, annual, child, measured, early, downstream, lifetime, aggregate"""
    ),
    "population_quality": _words(
        """low-income, landless, rural, first-time, informal, urban, displaced, unmarried, older, indebted, remote,
        young, marginalised, self-employed, food-insecure, illiterate, minority, peri-urban, disabled, middle-aged"""
    ),
    "population_state": _words(
        """without formal contracts, below the poverty line, aged 15 to 24, in temporary housing, near the border, over
        60, with no prior access, in the poorest quintile, under five, with young children, outside the capital, on
        waiting lists"""
    ),
    "push": _words(
        """bonuses, drives, pledges, awards, incentives, rewards, toolkits, clubs, contests, guarantees, hackathons,
        coupons"""
    ),
    # Used both as a studied cause and as a measured effect, which only the sentence distinguishes.
    "phenomenon": _words(
        """seasonal migration, contract farming, road access, land rental, electrification, female employment, crop
        rotation, internet use, labour mobility, smartphone ownership, off-farm work, intercropping, marketplace
        competition, union membership, cooperative membership, homeownership, early schooling, car ownership, remote
        working, refrigeration, bicycle ownership, multigrade teaching, trade openness, land consolidation, urban
        growth, vaccination, co-residence, piped water, informal borrowing, childbearing"""
    ),
    "mechanism": _words(
        """information frictions, moral hazard, social learning, peer pressure, risk aversion, present bias, norms,
        limited attention, liquidity needs, adverse selection, crowding out, signalling, loss aversion, habit
        formation, bargaining frictions, transaction costs, spatial sorting, reputational concerns, cognitive load,
        status seeking, complementarities, time inconsistency, ambiguity, credit rationing, herding, reciprocity,
        search costs, envy"""
    ),
    "shock": _words(
        """drought, flooding, currency devaluation, a locust invasion, world prices, border closures, civil unrest,
        fuel shortages, an early frost, election campaigns, a cyclone, import competition, a pandemic wave, strikes,
        hurricanes, a banking crisis, rising rents, landslides, a heatwave, fiscal austerity, cattle raids,
        inflation"""
    ),
    "staff": _words(
        """enumerators, policymakers, donors, field staff, coauthors, supervisors, translators, reviewers, drivers,
        consultants, statisticians, interviewers, project managers, journalists, local partners, coders, funders,
        referees"""
    ),
    "study_object": _words(
        """questionnaire, dataset, sample, estimate, design, baseline, specification, appendix, survey wave, season,
        panel, literature, protocol paper, draft, codebook, regression table, fieldwork, timeline"""
    ),
    "method": _words(
        """difference-in-differences, regression discontinuity, instrumental variables, synthetic controls, matching,
        randomised assignment, event studies, fixed effects, an encouragement design, a phase-in design, panel
        regressions, structural estimation, entropy balancing, a lottery-based comparison, bunching estimates, a
        stepped-wedge trial"""
    ),
    "reference": _words(
        """programme, intervention, scheme, policy, reform, initiative, treatment, package, project, measure, offer,
        rollout, pilot, arrangement, mandate, assistance, benefit, support"""
    ),
    "raised": _words(
        """raised, boosted, lifted, expanded, enlarged, increased, doubled, strengthened, heightened, pushed up,
        accelerated, magnified, drove up, amplified, elevated, multiplied, intensified, augmented"""
    ),
    "lowered": _words(
        """lowered, cut, curbed, shrank, dampened, decreased, halved, weakened, depressed, eroded, slowed, contained,
        brought down, trimmed, slashed, diminished, suppressed, curtailed"""
    ),
    "rose": _words("""rose, climbed, grew, went up, surged, soared, picked up, jumped, edged up, mounted"""),
    "fell": _words("""fell, declined, dropped, went down, receded, plunged, subsided, dwindled, edged down, slumped"""),
}

# Parts of all invented names: only the context of a name distinguishes a programme from a place, a survey or an agency.
NAME_STARTS: tuple[str, ...] = _words(
    "ba, do, ka, ki, lu, ma, mo, na, nu, pa, ra, ri, sa, se, ta, ti, va, zo, cha, ye, shi, gu, fe, ho"
)
NAME_MIDDLES: tuple[str, ...] = _words("la, mbe, ni, ro, ve, nda, si, ku, ri, lo, ma, ti, zu, ghe, po, wa, re, no")
NAME_ENDS: tuple[str, ...] = _words("ra, ndo, li, ka, mo, sha, ta, ne, lu, vi, ro, ya, sa, mba, go, den, ris, tel")

TITLE_QUALITIES: tuple[str, ...] = _words(
    """Inclusive, National, Rural, Better, Green, Shared, First, Rising, Open, United, Bright, Common, Healthy, New,
    Stronger, Regional, Active, Fair, Modern, Lasting"""
)
TITLE_THEMES: tuple[str, ...] = _words(
    """Harvest, Futures, Livelihoods, Horizons, Opportunity, Villages, Learning, Prosperity, Waters, Families, Skills,
    Roots, Growth, Care, Pathways, Dignity, Enterprise, Choices, Bridges, Gardens"""
)
TITLE_FORMS: tuple[str, ...] = _words("Programme, Initiative, Scheme, Fund, Partnership, Project, Plan, Facility")
